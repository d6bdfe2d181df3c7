// Polynomials of a square matrix S in a basis, applied to a signal of some columns.
#pragma once
#include <vector>

#include "sliced.h"

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

// All matrices are row-major and contiguous: signal, gradient and out n x width, scales
// (hops + 1) x width. Rows of the adjoint's signal are signal_row elements apart.

// out = sum_i p_i(S) (signal diag(scales_i))
template <class V>
void polynomial(const Sliced<V>& s, const Recurrence& basis, int64_t width, const V* signal,
                const V* scales, V* out, int threads);

// With U_i = p_i(S) gradient: out = sum_i U_i diag(scales_i), dots_i = column sums of U_i * signal.
template <class V>
void polynomial_adjoint(const Sliced<V>& s, const Recurrence& basis, int64_t width,
                        const V* gradient, const V* signal, int64_t signal_row, const V* scales,
                        V* out, double* dots, int threads);

// The hops themselves at some rows, and back: hops is (hops + 1) x count x width. `rows` are the
// numbers of the rows, or null for all in order.
//
//   gather   hops_i = rows of p_i(S) signal
//   scatter  signal = sum_i p_i(S) (hops_i at their rows, zero elsewhere): its adjoint
template <class V>
void gather_hops(const Sliced<V>& s, const Recurrence& basis, int64_t width, const int64_t* rows,
                 int64_t count, const V* signal, V* hops, int threads);

template <class V>
void scatter_hops(const Sliced<V>& s, const Recurrence& basis, int64_t width, const int64_t* rows,
                  int64_t count, const V* hops, V* signal, int threads);

}  // namespace hoplite
