// Input dropout of a dense feature matrix, a row at a time.
#include "drop_dense.h"

#include <algorithm>

#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

template <class V>
void drop_dense(const V* x, V* out, int64_t n, int64_t d, const int64_t* row_numbers,
                const KeepRule& rule, V scale, int threads) {
    threads = useful_threads(threads, n * d);
    const int64_t pieces = std::min<int64_t>(n, threads);
    parallel_for(pieces, threads, [&](int64_t piece, int) {
        for (int64_t row = n * piece / pieces; row < n * (piece + 1) / pieces; ++row) {
            const uint64_t first = uint64_t(row_numbers ? row_numbers[row] : row) * uint64_t(d);
            kernels<V, int32_t>().drop_range(rule, scale, x + row * d, first, d, out + row * d);
        }
    });
}

template void drop_dense(const float*, float*, int64_t, int64_t, const int64_t*, const KeepRule&,
                         float, int);
template void drop_dense(const double*, double*, int64_t, int64_t, const int64_t*, const KeepRule&,
                         double, int);

}  // namespace hoplite
