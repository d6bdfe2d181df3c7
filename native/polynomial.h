#pragma once
#include <vector>

#include "csr.h"

namespace hoplite {

// A basis is a three-term recurrence. With p_0 = 1 and g_0 = 0
//
//   p_{i+1}(x) = (a_i x + b_i) p_i(x) - g_i p_{i-1}(x)
//
// and the numbers of its steps are all that is known of it.
struct Step {
    double a, b, g;
};
using Recurrence = std::vector<Step>;  // one for each hop

// Polynomials of a square, symmetric S in such a basis. All matrices are row-major and
// contiguous: signal and out n x width, scales (hops + 1) x width.
//
//   combine  out = sum_i p_i(S) (signal diag(scales_i))
//   adjoint  out = sum_i g_i diag(scales_i),  dots_i = column sums of g_i * other,
//            with g_i = p_i(S) signal: the gradients of combine by its signal and by its scales
template <class V>
struct PolynomialArguments {
    const Recurrence& basis;
    int64_t hops() const { return int64_t(basis.size()); }
    int64_t width;
    const V* signal;
    const V* scales;
    V* out;
    const V* other;  // adjoint only: n x width
    double* dots;    // adjoint only: (hops + 1) x width
};

// The hops themselves at some rows, and back: hops is (hops + 1) x count x width.
//
//   gather   hops_i = rows of p_i(S) signal
//   scatter  signal = sum_i p_i(S) (hops_i at their rows, zero elsewhere): its adjoint
template <class V>
struct HopArguments {
    const Recurrence& basis;
    int64_t hops() const { return int64_t(basis.size()); }
    int64_t width;
    const int64_t* rows;  // which rows of S, or null for all in order
    int64_t count;
};

template <class V, class I>
void gather_hops(const RowsByLength<V, I>& s, const HopArguments<V>& arguments, const V* signal,
                 V* hops, int threads);

template <class V, class I>
void scatter_hops(const RowsByLength<V, I>& s, const HopArguments<V>& arguments, const V* hops,
                  V* signal, int threads);

template <class V, class I>
void combine(const RowsByLength<V, I>& s, const PolynomialArguments<V>& arguments, int threads);

template <class V, class I>
void adjoint(const RowsByLength<V, I>& s, const PolynomialArguments<V>& arguments, int threads);

}  // namespace hoplite
