#include "softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t range_rows = 1024;   // summed by themselves
constexpr int64_t exponential = 16;    // as costly as so many multiply-adds

}  // namespace

template <class V>
double softmax_cross_entropy(int64_t rows, int64_t width, const V* logits, const int64_t* targets,
                             const V* weights, V scale, V* gradient, int threads) {
    const int64_t ranges = (rows + range_rows - 1) / range_rows;
    std::vector<double> sums(ranges);
    threads = useful_threads(threads, rows * width * exponential);
    parallel_for(ranges, threads, [&](int64_t range, int) {
        std::vector<V> room(width);
        double total = 0;
        const int64_t stop = std::min(rows, (range + 1) * range_rows);
        for (int64_t row = range * range_rows; row < stop; ++row) {
            const V* const z = logits + row * width;
            const V weight = weights ? weights[row] : V(1);
            V largest = z[0], sum = 0;
            for (int64_t c = 1; c < width; ++c) largest = z[c] > largest ? z[c] : largest;
            for (int64_t c = 0; c < width; ++c) sum += room[c] = std::exp(z[c] - largest);
            const int64_t target = targets[row];
            total += double(weight * (std::log(sum) - (z[target] - largest)));
            if (!gradient) continue;
            V* const g = gradient + row * width;
            const V factor = scale * weight, share = factor / sum;
            for (int64_t c = 0; c < width; ++c) g[c] = room[c] * share;
            g[target] -= factor;
        }
        sums[range] = total;
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

template <class V>
int64_t count_right(int64_t rows, int64_t width, const V* logits, const int64_t* targets) {
    int64_t right = 0;
    for (int64_t row = 0; row < rows; ++row) {
        const V* const z = logits + row * width;
        const int64_t target = targets[row];
        const V own = z[target];
        bool wins = true;  // without branches, which would often be mispredicted
        for (int64_t c = 0; c < target; ++c) wins &= z[c] < own || own != own;
        for (int64_t c = 0; c < target; ++c) wins &= z[c] == z[c];
        for (int64_t c = target + 1; c < width; ++c) wins &= z[c] <= own || own != own;
        right += wins;
    }
    return right;
}

template double softmax_cross_entropy(int64_t, int64_t, const float*, const int64_t*, const float*,
                                      float, float*, int);
template double softmax_cross_entropy(int64_t, int64_t, const double*, const int64_t*,
                                      const double*, double, double*, int);
template int64_t count_right(int64_t, int64_t, const float*, const int64_t*);
template int64_t count_right(int64_t, int64_t, const double*, const int64_t*);

}  // namespace hoplite
