// The Python module hoplite._native: checks its arguments, then works without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "arrays.h"
#include "dispatch.h"
#include "features.h"
#include "parallel.h"
#include "polynomial.h"
#include "softmax.h"
#include "spmm.h"

using namespace hoplite;

namespace {

using AnyCsr = std::variant<CsrView<float, int32_t>, CsrView<float, int64_t>,
                            CsrView<double, int32_t>, CsrView<double, int64_t>>;

// An argument that may be None.
class Optional {
  public:
    Optional(const char* name, nb::handle object) {
        if (!object.is_none()) array_.emplace(name, object);
    }
    explicit operator bool() const { return array_.has_value(); }
    const Array* operator->() const { return &*array_; }
    const Array& operator*() const { return *array_; }
    template <class T>
    const T* read() const {
        return array_ ? array_->read<T>() : nullptr;
    }
    // A contiguous array of this shape.
    void require(int64_t rows, int64_t columns) const {
        if (!array_) return;
        array_->require_shape(rows, columns);
        array_->require_contiguous();
    }
    void require(int64_t length) const {
        if (!array_) return;
        array_->require_shape(length);
        array_->require_contiguous();
    }

  private:
    std::optional<Array> array_;
};

void require(const Array& array, int64_t rows, int64_t columns) {
    array.require_shape(rows, columns);
    array.require_contiguous();
}

KeepRule keep_rule(uint32_t key0, uint32_t key1, uint32_t threshold, double scale) {
    if (!std::isfinite(scale)) refuse("scale", "must be finite");
    return {key0, key1, threshold};
}

template <class V, class I>
AnyCsr checked_view(const Array& indptr, const Array& indices, const Array& values,
                    int64_t columns) {
    const int64_t rows = indptr.shape(0) - 1, nnz = indices.shape(0);
    const CsrView<V, I> s{rows, columns, nnz, indptr.read<int64_t>(), indices.read<I>(),
                          values.read<V>()};
    const nb::gil_scoped_release release;
    if (rows < 0 || columns < 0 || s.indptr[0] != 0 || s.indptr[rows] != nnz ||
        values.shape(0) != nnz)
        throw std::invalid_argument("indptr, indices and values do not fit together");
    for (int64_t row = 0; row < rows; ++row)
        if (s.indptr[row] > s.indptr[row + 1])
            throw std::invalid_argument("indptr must never decrease");
    for (int64_t k = 0; k < nnz; ++k)
        if (s.indices[k] < 0 || s.indices[k] >= columns)
            throw std::invalid_argument("a column index is out of range");
    return s;
}

// A basis of polynomials from the table of (a_i, b_i, g_i), one row for each hop; checked once.
class Basis {
  public:
    explicit Basis(nb::handle object) {
        const Array table("table", object);
        table.require_dims(2);
        require(table, table.shape(0), 3);
        const double* number = table.read<double>();
        for (int64_t i = 0; i < table.shape(0); ++i, number += 3) {
            const Step step{number[0], number[1], number[2]};
            if (!std::isfinite(step.a) || !std::isfinite(step.b) || !std::isfinite(step.g))
                throw std::invalid_argument("a number of the recurrence is not finite");
            if (i == 0 && step.g != 0)
                throw std::invalid_argument("g must be 0 at first: nothing is before hop 0");
            steps.push_back(step);
        }
    }
    int64_t terms() const { return int64_t(steps.size()) + 1; }

    Recurrence steps;
};

// A CSR matrix that shares, and keeps alive, the arrays it was made from.
class Csr {
  public:
    Csr(nb::handle indptr, nb::handle indices, nb::handle values, int64_t columns)
        : indptr_("indptr", indptr), indices_("indices", indices), values_("values", values),
          view_(make_view(columns)) {}

    void spmm(nb::handle x_, nb::handle y_, double scale, nb::handle z_, nb::handle a_,
              nb::handle w_, double b, nb::handle u_, double c, int threads) const {
        const Array x("x", x_), y("y", y_);
        const Optional z("z", z_), a("a", a_), w("w", w_), u("u", u_);
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                x.require_dims(2);
                const int64_t width = x.shape(1);
                require(x, s.columns, width);
                require(y, s.rows, width);
                for (const Optional* other : {&z, &w, &u}) other->require(s.rows, width);
                a.require(width);
                if (bool(z) != bool(a)) throw std::invalid_argument("z and a must come together");
                if (y.overlaps(x) || (u && y.overlaps(*u)))
                    throw std::invalid_argument("y must not share memory with x or u");
                const SpmmArguments<V> arguments{x.read<V>(), y.write<V>(), width, V(scale),
                                                 z.read<V>(), a.read<V>(),  w.read<V>(), V(b),
                                                 u.read<V>(), V(c)};
                const nb::gil_scoped_release release;
                hoplite::spmm(s, arguments, threads);
            },
            view_);
    }

    void polynomial(const Basis& basis, nb::handle signal_, nb::handle scales_, nb::handle out_,
                    int threads) const {
        const Array signal("signal", signal_), scales("scales", scales_), out("out", out_);
        with_slices(signal, [&](auto slices, int64_t n, int64_t width) {
            using V = typename decltype(slices)::Value;
            require(signal, n, width);
            require(scales, basis.terms(), width);
            require(out, n, width);
            const V *from = signal.read<V>(), *factors = scales.read<V>();
            V* const to = out.write<V>();
            const nb::gil_scoped_release release;
            hoplite::polynomial(slices(), basis.steps, width, from, factors, to, threads);
        });
    }

    void polynomial_adjoint(const Basis& basis, nb::handle gradient_, nb::handle signal_,
                            nb::handle scales_, nb::handle out_, nb::handle dots_,
                            int threads) const {
        const Array gradient("gradient", gradient_), signal("signal", signal_);
        const Array scales("scales", scales_), out("out", out_), dots("dots", dots_);
        with_slices(signal, [&](auto slices, int64_t n, int64_t width) {
            using V = typename decltype(slices)::Value;
            require(gradient, n, width);
            signal.require_rows();
            signal.require_shape(n, width);
            require(scales, basis.terms(), width);
            require(out, n, width);
            require(dots, basis.terms(), width);
            const V *of = gradient.read<V>(), *from = signal.read<V>(), *factors = scales.read<V>();
            V* const to = out.write<V>();
            double* const sums = dots.write<double>();
            const nb::gil_scoped_release release;
            hoplite::polynomial_adjoint(slices(), basis.steps, width, of, from, signal.row_stride(),
                                        factors, to, sums, threads);
        });
    }

    void gather_hops(const Basis& basis, nb::handle rows, nb::handle signal, nb::handle out,
                     int threads) const {
        move_hops(false, basis, rows, Array("signal", signal), Array("out", out), threads);
    }

    void scatter_hops(const Basis& basis, nb::handle rows, nb::handle hops, nb::handle out,
                      int threads) const {
        move_hops(true, basis, rows, Array("out", out), Array("hops", hops), threads);
    }

    void times(bool transposed, nb::handle dense_, nb::handle out_, nb::handle row_numbers,
               uint32_t key0, uint32_t key1, uint32_t threshold, double scale, nb::handle whole_,
               int threads) const {
        const Array dense("dense", dense_), out("out", out_);
        const bool both = !whole_.is_none();
        const Array whole("whole", both ? whole_ : out_);
        const Optional numbers("row_numbers", row_numbers);
        const KeepRule rule = keep_rule(key0, key1, threshold, scale);
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                dense.require_rows();
                if (transposed && both)
                    throw std::invalid_argument("whole goes with the product that is not transposed");
                dense.require_shape(transposed ? s.rows : s.columns, dense.shape(1));
                for (const Array* result : {&out, &whole}) {
                    result->require_rows();
                    result->require_shape(transposed ? s.columns : s.rows, dense.shape(1));
                }
                if (whole.row_stride() != out.row_stride())
                    throw std::invalid_argument("out and whole must have rows equally far apart");
                numbers.require(s.rows);
                const TimesArguments<V> arguments{transposed,
                                                  dense.read<V>(),
                                                  dense.row_stride(),
                                                  out.write<V>(),
                                                  out.row_stride(),
                                                  dense.shape(1),
                                                  numbers.read<int64_t>(),
                                                  rule,
                                                  V(scale),
                                                  both ? whole.write<V>() : nullptr};
                const nb::gil_scoped_release release;
                hoplite::times(s, arguments, threads);
            },
            view_);
    }

  private:
    // The hops at some rows of a signal or, with `scatter`, the signal from them.
    void move_hops(bool scatter, const Basis& basis, nb::handle rows_, const Array& signal,
                   const Array& hops, int threads) const {
        const Optional rows("rows", rows_);
        with_slices(signal, [&](auto slices, int64_t n, int64_t width) {
            using V = typename decltype(slices)::Value;
            require(signal, n, width);
            int64_t count = n;
            if (rows) {
                rows->require_dims(1);
                rows->require_contiguous();
                count = rows->shape(0);
            }
            const int64_t* const numbers = rows.read<int64_t>();
            for (int64_t r = 0; numbers && r < count; ++r)
                if (numbers[r] < 0 || numbers[r] >= n) refuse("rows", "are out of range");
            hops.require_shape(basis.terms(), count, width);
            hops.require_contiguous();
            const auto call = [&](auto* from, V* to, auto function) {
                const nb::gil_scoped_release release;
                function(slices(), basis.steps, width, numbers, count, from, to, threads);
            };
            if (scatter)
                call(hops.read<V>(), signal.write<V>(), hoplite::scatter_hops<V>);
            else
                call(signal.read<V>(), hops.write<V>(), hoplite::gather_hops<V>);
        });
    }

    // Called without the GIL: the sliced form of the matrix, made at the first use.
    template <class V>
    struct Slices {
        using Value = V;
        const Csr& matrix;
        const Sliced<V>& operator()() const {
            std::call_once(matrix.sliced_once_, [&] {
                matrix.sliced_ = std::visit(
                    [](const auto& s) -> std::shared_ptr<const void> {
                        using Own = std::decay_t<decltype(*s.values)>;
                        return std::make_shared<Sliced<Own>>(s);
                    },
                    matrix.view_);
            });
            return *static_cast<const Sliced<V>*>(matrix.sliced_.get());
        }
    };

    // f(slices, n, width) with n x n the matrix and `width` the columns of the signal.
    template <class F>
    void with_slices(const Array& signal, F&& f) const {
        signal.require_dims(2);
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                if (s.rows != s.columns) throw std::invalid_argument("the matrix must be square");
                f(Slices<V>{*this}, s.rows, signal.shape(1));
            },
            view_);
    }

    AnyCsr make_view(int64_t columns) const {
        for (const Array* array : {&indptr_, &indices_, &values_}) {
            array->require_dims(1);
            array->require_contiguous();
        }
        const bool single = values_.holds<float>(), narrow = indices_.holds<int32_t>();
        if (!single && !values_.holds<double>()) refuse("values", "must be float32 or float64");
        if (!narrow && !indices_.holds<int64_t>()) refuse("indices", "must be int32 or int64");
        const auto make = single   ? (narrow ? checked_view<float, int32_t>
                                             : checked_view<float, int64_t>)
                          : narrow ? checked_view<double, int32_t>
                                   : checked_view<double, int64_t>;
        return make(indptr_, indices_, values_, columns);
    }

    Array indptr_, indices_, values_;
    AnyCsr view_;
    mutable std::once_flag sliced_once_;
    mutable std::shared_ptr<const void> sliced_;  // a Sliced of the view's type of values
};

// f(V()) with the type of the array's numbers.
template <class F>
void with_type(const char* name, const Array& array, F&& f) {
    if (array.holds<float>())
        f(float());
    else if (array.holds<double>())
        f(double());
    else
        refuse(name, "must be float32 or float64");
}

// Gives the GIL to others while there is work for some microseconds; getting it back may take longer
// than a small kernel.
class Release {
  public:
    explicit Release(int64_t work) {
        if (work >= int64_t(1) << 16) release_.emplace();
    }

  private:
    std::optional<nb::gil_scoped_release> release_;
};

void drop_dense_any(nb::handle x_, nb::handle out_, nb::handle row_numbers, uint32_t key0,
                    uint32_t key1, uint32_t threshold, double scale, int threads) {
    const Array x("x", x_), out("out", out_);
    const Optional numbers("row_numbers", row_numbers);
    const KeepRule rule = keep_rule(key0, key1, threshold, scale);
    x.require_dims(2);
    const int64_t n = x.shape(0), d = x.shape(1);
    require(x, n, d);
    require(out, n, d);
    numbers.require(n);
    with_type("x", x, [&](auto zero) {
        using V = decltype(zero);
        const V* const from = x.read<V>();
        V* const to = out.write<V>();
        const int64_t* const rows = numbers.read<int64_t>();
        const nb::gil_scoped_release release;
        drop_dense(from, to, n, d, rows, rule, V(scale), threads);
    });
}

void adam_any(nb::handle gradient_, nb::handle weight_, nb::handle mean_, nb::handle square_,
              double lr, double decay, int64_t step, int threads) {
    const Array gradient("gradient", gradient_), weight("weight", weight_);
    const Array mean("mean", mean_), square("square", square_);
    const int64_t size = weight.size();
    for (const Array* array : {&gradient, &weight, &mean, &square}) {
        array->require_contiguous();
        if (array->size() != size)
            throw std::invalid_argument("gradient, weight, mean and square must have one size");
    }
    if (step < 1) refuse("step", "must be at least 1");
    with_type("weight", weight, [&](auto zero) {
        using V = decltype(zero);
        const double mean_left = 1 - std::pow(0.9, double(step));
        const double square_left = 1 - std::pow(0.999, double(step));
        const AdamStep<V> numbers{V(lr / mean_left), V(decay), V(1 / std::sqrt(square_left))};
        const V* const g = gradient.read<V>();
        V *const w = weight.write<V>(), *const m = mean.write<V>(), *const v = square.write<V>();
        const Release release(size * 4);
        constexpr int64_t piece = int64_t(1) << 14;
        const int useful = useful_threads(threads, size * 4);  // divisions and a root each
        parallel_for((size + piece - 1) / piece, useful, [&](int64_t task, int) {
            const int64_t at = task * piece;
            kernels<V, int32_t>().adam(numbers, g + at, w + at, m + at, v + at,
                                       std::min(piece, size - at));
        });
    });
}

// Class indices, each below `width`.
void require_targets(const Array& targets, int64_t rows, int64_t width) {
    targets.require_shape(rows);
    targets.require_contiguous();
    const int64_t* const classes = targets.read<int64_t>();
    for (int64_t row = 0; row < rows; ++row)
        if (classes[row] < 0 || classes[row] >= width)
            throw std::invalid_argument("a target is not the index of a class");
}

double softmax_any(nb::handle logits_, nb::handle targets_, nb::handle weights_, double scale,
                   nb::handle gradient_, int threads) {
    const Array logits("logits", logits_), targets("targets", targets_);
    const Optional weights("weights", weights_), gradient("gradient", gradient_);
    logits.require_dims(2);
    logits.require_contiguous();
    const int64_t rows = logits.shape(0), width = logits.shape(1);
    require_targets(targets, rows, width);
    weights.require(rows);
    gradient.require(rows, width);
    double total = 0;
    with_type("logits", logits, [&](auto zero) {
        using V = decltype(zero);
        const V* const z = logits.read<V>();
        const V* const each = weights.read<V>();
        V* const out = gradient ? gradient->write<V>() : nullptr;
        const int64_t* const classes = targets.read<int64_t>();
        const Release release(rows * width * 8);
        total = softmax_cross_entropy(rows, width, z, classes, each, V(scale), out, threads);
    });
    return total;
}

int64_t count_right_any(nb::handle logits_, nb::handle targets_) {
    const Array logits("logits", logits_), targets("targets", targets_);
    logits.require_dims(2);
    logits.require_contiguous();
    const int64_t rows = logits.shape(0), width = logits.shape(1);
    require_targets(targets, rows, width);
    int64_t right = 0;
    with_type("logits", logits, [&](auto zero) {
        using V = decltype(zero);
        const V* const z = logits.read<V>();
        const int64_t* const classes = targets.read<int64_t>();
        const Release release(rows * width);
        right = count_right(rows, width, z, classes);
    });
    return right;
}

}  // namespace

NB_MODULE(_native, module) {
    nb::set_leak_warnings(false);  // what lives until the interpreter ends is not a leak
    using nb::arg;
    module.attr("INTERFACE") = 3;  // hoplite/engine/backend.py compares it: one more at every change
    nb::class_<Basis>(module, "Basis").def(nb::init<nb::handle>(), arg("table"));
    nb::class_<Csr>(module, "Csr")
        .def(nb::init<nb::handle, nb::handle, nb::handle, int64_t>(), arg("indptr"),
             arg("indices"), arg("values"), arg("columns"))
        .def("spmm", &Csr::spmm, arg("x"), arg("y"), arg("scale"), arg("z").none(),
             arg("a").none(), arg("w").none(), arg("b"), arg("u").none(), arg("c"), arg("threads"))
        .def("polynomial", &Csr::polynomial, arg("basis"), arg("signal"), arg("scales"), arg("out"),
             arg("threads"))
        .def("polynomial_adjoint", &Csr::polynomial_adjoint, arg("basis"), arg("gradient"),
             arg("signal"), arg("scales"), arg("out"), arg("dots"), arg("threads"))
        .def("gather_hops", &Csr::gather_hops, arg("basis"), arg("rows").none(), arg("signal"),
             arg("out"), arg("threads"))
        .def("scatter_hops", &Csr::scatter_hops, arg("basis"), arg("rows").none(), arg("hops"),
             arg("out"), arg("threads"))
        .def("times", &Csr::times, arg("transposed"), arg("dense"), arg("out"),
             arg("row_numbers").none(), arg("key0"), arg("key1"), arg("threshold"), arg("scale"),
             arg("whole").none(), arg("threads"));
    module.def("drop_dense", &drop_dense_any, arg("x"), arg("out"), arg("row_numbers").none(),
               arg("key0"), arg("key1"), arg("threshold"), arg("scale"), arg("threads"));
    module.def("adam", &adam_any, arg("gradient"), arg("weight"), arg("mean"), arg("square"),
               arg("lr"), arg("decay"), arg("step"), arg("threads"));
    module.def("softmax_cross_entropy", &softmax_any, arg("logits"), arg("targets"),
               arg("weights").none(), arg("scale"), arg("gradient").none(), arg("threads"));
    module.def("count_right", &count_right_any, arg("logits"), arg("targets"));
    module.def("architectures", &architectures);
    module.def("architecture", &architecture);
    module.def("set_architecture", &set_architecture, arg("name"));
}
