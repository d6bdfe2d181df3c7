// The Python module hoplite._native.
//
// Dense arrays arrive as addresses: converting a tensor costs more than a whole multiplication of
// a small graph. Their shapes, types and layout are checked by the Python functions that call
// these; nothing else should. The sparse arrays are checked here, once, since an index out of
// range would read foreign memory, and so are the numbers of a basis.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <variant>

#include "adam_runs.h"
#include "dispatch.h"
#include "drop_dense.h"
#include "dropout_spmm.h"
#include "polynomial.h"
#include "spmm.h"

namespace nb = nanobind;
using namespace hoplite;

namespace {

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

template <class View>
using index_of = std::decay_t<decltype(*std::declval<View>().indices)>;

using Array = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Indptr = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;
using AnyCsr = std::variant<CsrView<float, int32_t>, CsrView<float, int64_t>,
                            CsrView<double, int32_t>, CsrView<double, int64_t>>;

template <class V, class I>
AnyCsr checked_view(const Indptr& indptr, const Array& indices, const Array& values,
                    int64_t columns) {
    const int64_t rows = int64_t(indptr.shape(0)) - 1, nnz = int64_t(indices.shape(0));
    const CsrView<V, I> s{rows,
                          columns,
                          nnz,
                          indptr.data(),
                          static_cast<const I*>(indices.data()),
                          static_cast<const V*>(values.data())};
    if (rows < 0 || columns < 0 || s.indptr[0] != 0 || s.indptr[rows] != nnz ||
        int64_t(values.shape(0)) != nnz)
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
    explicit Basis(const Table& table) {
        const double* number = table.data();
        for (std::size_t i = 0; i < table.shape(0); ++i, number += 3) {
            const Step step{number[0], number[1], number[2]};
            if (!std::isfinite(step.a) || !std::isfinite(step.b) || !std::isfinite(step.g))
                throw std::invalid_argument("a number of the recurrence is not finite");
            if (i == 0 && step.g != 0)
                throw std::invalid_argument("g must be 0 at first: nothing is before hop 0");
            steps_.push_back(step);
        }
    }

    const Recurrence& of_hops(int64_t hops) const {
        if (hops != int64_t(steps_.size()))
            throw std::invalid_argument("the recurrence must have one row for each hop");
        return steps_;
    }

  private:
    Recurrence steps_;
};

// A CSR matrix that shares, and keeps alive, the arrays it was made from.
class Csr {
  public:
    Csr(Indptr indptr, Array indices, Array values, int64_t columns)
        : indptr_(indptr), indices_(indices), values_(values), view_(make_view(columns)) {}

    void spmm(uintptr_t x, uintptr_t y, int64_t width, double scale, uintptr_t z, uintptr_t a,
              uintptr_t w, double b, uintptr_t u, double c, int threads) const {
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                const SpmmArguments<V> arguments{at<V>(x), at<V>(y), width, V(scale), at<V>(z),
                                                 at<V>(a), at<V>(w), V(b),  at<V>(u), V(c)};
                hoplite::spmm(s, arguments, threads);
            },
            view_);
    }

    void dropout_spmm(bool transposed, uintptr_t dense, int64_t dense_row, int64_t dense_run,
                      uintptr_t out, int64_t runs, int64_t width, uintptr_t row_numbers,
                      uintptr_t rules, uintptr_t scales, int threads) const {
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                const DropoutArguments<V> arguments{transposed,
                                                    at<V>(dense),
                                                    dense_row,
                                                    dense_run,
                                                    at<V>(out),
                                                    runs,
                                                    width,
                                                    at<int64_t>(row_numbers),
                                                    at<KeepRule>(rules),
                                                    at<double>(scales)};
                hoplite::dropout_spmm(s, arguments, threads);
            },
            view_);
    }

    // With `dots`, the adjoint; without, the combination.
    void polynomial(const Basis& basis, int64_t hops, int64_t width, uintptr_t signal,
                    uintptr_t scales, uintptr_t out, uintptr_t other, uintptr_t dots,
                    int threads) const {
        const Recurrence& steps = basis.of_hops(hops);
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                const PolynomialArguments<V> arguments{steps,         width,        at<V>(signal),
                                                       at<V>(scales), at<V>(out), at<V>(other),
                                                       at<double>(dots)};
                using I = index_of<decltype(s)>;
                (dots ? adjoint<V, I> : combine<V, I>)(by_length(s), arguments, threads);
            },
            view_);
    }

    // The hops at some rows of a signal or, with `scatter`, the signal from them.
    void move_hops(bool scatter, const Basis& basis, int64_t hops, int64_t width, uintptr_t rows,
                   int64_t count, uintptr_t source, uintptr_t out, int threads) const {
        const Recurrence& steps = basis.of_hops(hops);
        std::visit(
            [&](const auto& s) {
                using V = std::decay_t<decltype(*s.values)>;
                using I = index_of<decltype(s)>;
                const HopArguments<V> arguments{steps, width, at<int64_t>(rows), count};
                (scatter ? scatter_hops<V, I> : gather_hops<V, I>)(
                    by_length(s), arguments, at<const V>(source), at<V>(out), threads);
            },
            view_);
    }

  private:
    // Made at the first use, for polynomials, of which only a square matrix has any.
    template <class V, class I>
    const RowsByLength<V, I>& by_length(const CsrView<V, I>& s) const {
        std::call_once(sorted_once_, [&] { sorted_ = std::make_shared<RowsByLength<V, I>>(s); });
        return *static_cast<const RowsByLength<V, I>*>(sorted_.get());
    }

    AnyCsr make_view(int64_t columns) const {
        const bool single = values_.dtype() == nb::dtype<float>();
        const bool narrow = indices_.dtype() == nb::dtype<int32_t>();
        if (!single && values_.dtype() != nb::dtype<double>())
            throw std::invalid_argument("values must be float32 or float64");
        if (!narrow && indices_.dtype() != nb::dtype<int64_t>())
            throw std::invalid_argument("indices must be int32 or int64");
        const auto make = single   ? (narrow ? checked_view<float, int32_t>
                                             : checked_view<float, int64_t>)
                          : narrow ? checked_view<double, int32_t>
                                   : checked_view<double, int64_t>;
        return make(indptr_, indices_, values_, columns);
    }

    Indptr indptr_;
    Array indices_, values_;
    AnyCsr view_;
    mutable std::once_flag sorted_once_;
    mutable std::shared_ptr<const void> sorted_;  // a RowsByLength of the view's kind
};

void drop_dense_any(bool single, uintptr_t x, uintptr_t out, int64_t n, int64_t d,
                    uintptr_t row_numbers, uint32_t key0, uint32_t key1, uint32_t threshold,
                    double scale, int threads) {
    const KeepRule rule{key0, key1, threshold};
    const int64_t* numbers = at<int64_t>(row_numbers);
    if (single)
        drop_dense(at<float>(x), at<float>(out), n, d, numbers, rule, float(scale), threads);
    else
        drop_dense(at<double>(x), at<double>(out), n, d, numbers, rule, scale, threads);
}

void adam_any(bool single, int64_t runs, int64_t size, uintptr_t gradient, uintptr_t weight,
              uintptr_t mean, uintptr_t square, uintptr_t lr, uintptr_t decay, int64_t steps,
              int threads) {
    if (single)
        adam_runs(runs, size, at<const float>(gradient), at<float>(weight), at<float>(mean),
                  at<float>(square), at<const double>(lr), at<const double>(decay), steps,
                  threads);
    else
        adam_runs(runs, size, at<const double>(gradient), at<double>(weight), at<double>(mean),
                  at<double>(square), at<const double>(lr), at<const double>(decay), steps,
                  threads);
}

}  // namespace

NB_MODULE(_native, module) {
    nb::set_leak_warnings(false);  // what lives until the interpreter ends is not a leak
    using release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Basis>(module, "Basis").def(nb::init<const Table&>());
    nb::class_<Csr>(module, "Csr")
        .def(nb::init<Indptr, Array, Array, int64_t>())
        .def("spmm", &Csr::spmm, release())
        .def("dropout_spmm", &Csr::dropout_spmm, release())
        .def("polynomial", &Csr::polynomial, release())
        .def("move_hops", &Csr::move_hops, release());
    module.def("drop_dense", &drop_dense_any, release());
    module.def("adam", &adam_any, release());
    module.def("architectures", &architectures);
    module.def("architecture", &architecture);
    module.def("set_architecture", &set_architecture);
#ifdef _OPENMP
    module.attr("threading") = "openmp";
#else
    module.attr("threading") = "std::thread";
#endif
}
