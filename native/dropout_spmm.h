#pragma once
#include "csr.h"
#include "kernels.h"

namespace hoplite {

// For R runs side by side, with X the n x d feature matrix and keep/scale each run's dropout:
//
//   forward     out[row, r, :] = sum_f    keep_r(row, f) scale_r X[row, f] dense[f, r, :]
//   transposed  out[r, f, :]   = sum_row  keep_r(row, f) scale_r X[row, f] dense[row, r, :]
//
// The matrix argument is X (n x d) forward and X^T (d x n) transposed. The strides of `dense` are
// given, except that the m columns lie together; `out` is [n, R, m] forward and [R, d, m]
// transposed. The hashed element is row_number * d + f, with row_number =
// row_numbers[row], or row if that is null.
template <class V>
struct DropoutArguments {
    bool transposed;
    const V* dense;
    int64_t dense_row, dense_run;  // elements from one to the next
    V* out;
    int64_t runs, width;           // R and m
    const int64_t* row_numbers;    // n, or null
    const KeepRule* rules;         // R; threshold 0 keeps everything
    const double* scales;          // R
};

template <class V, class I>
void dropout_spmm(const CsrView<V, I>& s, const DropoutArguments<V>& arguments, int threads);

}  // namespace hoplite
