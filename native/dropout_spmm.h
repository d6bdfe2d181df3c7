#pragma once
#include "csr.h"
#include "kernels.h"

namespace hoplite {

// For R runs side by side, with X the n x d feature matrix and keep/scale each run's dropout:
//
//   forward     out[row, r, :] = sum_f    keep_r(row, f) scale_r X[row, f] dense[r, f, :]
//   transposed  out[r, f, :]   = sum_row  keep_r(row, f) scale_r X[row, f] dense[r, row, :]
//
// The matrix argument is X (n x d) forward and X^T (d x n) transposed. `dense` is [R, d, m]
// forward and [R, n, m] transposed (one run's rows lie together: they are gathered many times),
// `out` is [n, R, m] and [R, d, m]. The hashed element is row_number * d + f, with row_number =
// row_numbers[row], or row if that is null.
template <class V>
struct DropoutArguments {
    bool transposed;
    const V* dense;
    V* out;
    int64_t runs, width;           // R and m
    const int64_t* row_numbers;    // n, or null
    const KeepRule* rules;         // R; threshold 0 keeps everything
    const double* scales;          // R
};

template <class V, class I>
void dropout_spmm(const CsrView<V, I>& s, const DropoutArguments<V>& arguments, int threads);

}  // namespace hoplite
