// NumPy arrays as arguments: checked views on the memory of anything with the buffer protocol.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace hoplite {

namespace nb = nanobind;

[[noreturn]] inline void refuse(const char* name, const std::string& what) {
    throw std::invalid_argument(std::string(name) + " " + what);
}

// The memory of one argument, held for as long as this lives. Made and destroyed with the GIL.
class Array {
  public:
    Array(const char* name, nb::handle object) : name_(name) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_RECORDS_RO) != 0) {
            PyErr_Clear();
            refuse(name, "must be a NumPy array of numbers");
        }
        const char* format = view_.format ? view_.format : "B";
        if (*format == '@' || *format == '=') ++format;
        const bool plain = *format && !format[1];
        is_real_ = plain && std::strchr("fd", *format);
        is_integer_ = plain && std::strchr("ilqn", *format);
    }
    ~Array() { PyBuffer_Release(&view_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    template <class T>
    bool holds() const {
        return (std::is_integral_v<T> ? is_integer_ : is_real_) && view_.itemsize == sizeof(T);
    }

    int64_t dims() const { return view_.ndim; }
    int64_t shape(int axis) const { return view_.shape[axis]; }
    int64_t size() const {
        int64_t count = 1;
        for (int axis = 0; axis < view_.ndim; ++axis) count *= shape(axis);
        return count;
    }
    // Elements from one row of a two-dimensional array to the next.
    int64_t row_stride() const {
        return shape(0) > 1 ? view_.strides[0] / view_.itemsize : shape(1);
    }

    void require_shape(int64_t rows, int64_t columns) const { require({rows, columns}, 2); }
    void require_shape(int64_t length) const { require({length}, 1); }
    void require_shape(int64_t a, int64_t b, int64_t c) const { require({a, b, c}, 3); }
    void require_dims(int dims) const {
        if (view_.ndim != dims) refuse(name_, "must have " + std::to_string(dims) + " dimensions");
    }

    void require_contiguous() const {
        if (!PyBuffer_IsContiguous(&view_, 'C')) refuse(name_, "must be C-contiguous");
    }
    // Rows of a wider contiguous array will do.
    void require_rows() const {
        require_dims(2);
        if (size() == 0) return;
        const int64_t apart = view_.strides[0], item = view_.itemsize;
        if ((shape(1) > 1 && view_.strides[1] != item) ||
            (shape(0) > 1 && (apart < shape(1) * item || apart % item != 0)))
            refuse(name_, "must be C-contiguous, or columns of a C-contiguous array");
    }

    template <class T>
    const T* read() const {
        if (!holds<T>()) refuse(name_, std::string("must be ") + type_name<T>());
        if (reinterpret_cast<uintptr_t>(view_.buf) % sizeof(T) != 0)
            refuse(name_, "must be aligned");
        return static_cast<const T*>(view_.buf);
    }
    template <class T>
    T* write() const {
        if (view_.readonly) refuse(name_, "must be writable");
        return const_cast<T*>(read<T>());
    }

    // Whether the two have memory in common, both contiguous.
    bool overlaps(const Array& other) const {
        const auto* const own = static_cast<const char*>(view_.buf);
        const auto* const its = static_cast<const char*>(other.view_.buf);
        return own < its + other.view_.len && its < own + view_.len;
    }

  private:
    struct Lengths {
        int64_t lengths[3];
    };
    void require(const Lengths& wanted, int dims) const {
        bool same = view_.ndim == dims;
        for (int axis = 0; same && axis < dims; ++axis) same = shape(axis) == wanted.lengths[axis];
        if (same) return;
        std::string text = "must have shape (";
        for (int axis = 0; axis < dims; ++axis)
            text += std::to_string(wanted.lengths[axis]) + (axis + 1 < dims ? ", " : "");
        text += dims == 1 ? ",) but has (" : ") but has (";
        for (int axis = 0; axis < view_.ndim; ++axis)
            text += std::to_string(shape(axis)) + (axis + 1 < view_.ndim ? ", " : "");
        refuse(name_, text + (view_.ndim == 1 ? ",)" : ")"));
    }
    template <class T>
    static const char* type_name() {
        return std::is_same_v<T, float>     ? "float32"
               : std::is_same_v<T, double>  ? "float64"
               : std::is_same_v<T, int32_t> ? "int32"
                                            : "int64";
    }

    const char* name_;
    Py_buffer view_{};
    bool is_real_, is_integer_;
};

}  // namespace hoplite
