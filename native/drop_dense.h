#pragma once
#include "kernels.h"

namespace hoplite {

// out[row, f] = keep(row_number * d + f) ? scale * x[row, f] : 0, for a dense n x d matrix x;
// row_number = row_numbers[row], or row if that is null.
template <class V>
void drop_dense(const V* x, V* out, int64_t n, int64_t d, const int64_t* row_numbers,
                const KeepRule& rule, V scale, int threads);

}  // namespace hoplite
