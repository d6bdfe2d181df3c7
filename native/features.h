// Features times a dense matrix, with input dropout.
#pragma once
#include "csr.h"
#include "kernels.h"

namespace hoplite {

// With X the n x d feature matrix and X~ = X * keep * scale (keep(row, f) hashes
// row_number * d + f, where row_number = row_numbers[row], or row if that is null):
//
//   out = X~ dense     dense is d x width, out n x width
//   out = X~^T dense   transposed: dense is n x width, out d x width
//
// Columns of dense and out lie together, rows are so many elements apart. With `whole`, not
// transposed, X dense is written there, too: X is read once for both.
template <class V>
struct TimesArguments {
    bool transposed;
    const V* dense;
    int64_t dense_row;
    V* out;
    int64_t out_row;
    int64_t width;
    const int64_t* row_numbers;  // n, or null
    KeepRule rule;               // threshold 0 keeps everything
    V scale;
    V* whole = nullptr;          // rows as those of out
};

template <class V, class I>
void times(const CsrView<V, I>& x, const TimesArguments<V>& arguments, int threads);

// out[row, f] = keep(row, f) ? scale * x[row, f] : 0, for a dense n x d matrix x.
template <class V>
void drop_dense(const V* x, V* out, int64_t n, int64_t d, const int64_t* row_numbers,
                const KeepRule& rule, V scale, int threads);

}  // namespace hoplite
