// Adam for many runs: pieces of every run's stretch, handed out to the threads.
#include "adam_runs.h"

#include <algorithm>
#include <cmath>

#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

template <class V>
void adam_runs(int64_t runs, int64_t size, const V* gradient, V* weight, V* mean, V* square,
               const double* lr, const double* decay, int64_t steps, int threads) {
    constexpr int64_t piece = int64_t(1) << 16;
    const int64_t pieces = (size + piece - 1) / piece;
    const double mean_left = 1 - std::pow(0.9, double(steps));
    const double square_left = 1 - std::pow(0.999, double(steps));
    const int useful = useful_threads(threads, runs * size * 4);  // divisions and a root each
    parallel_for(runs * pieces, useful, [&](int64_t task, int) {
        const int64_t run = task / pieces, first = task % pieces * piece;
        const int64_t at = run * size + first;
        const AdamStep<V> step{V(lr[run] / mean_left), V(decay[run]),
                               V(1 / std::sqrt(square_left))};
        kernels<V, int32_t>().adam(step, gradient + at, weight + at, mean + at, square + at,
                                   std::min(piece, size - first));
    });
}

template void adam_runs(int64_t, int64_t, const float*, float*, float*, float*, const double*,
                        const double*, int64_t, int);
template void adam_runs(int64_t, int64_t, const double*, double*, double*, double*, const double*,
                        const double*, int64_t, int);

}  // namespace hoplite
