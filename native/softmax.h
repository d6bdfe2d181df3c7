// The softmax cross-entropy of rows of logits, and how many of them are right.
#pragma once
#include <cstdint>

namespace hoplite {

// The sum over the rows of w (log sum_c e^(z_c) - z_t), in double, over ranges of rows that do not
// depend on the threads. With `gradient`, it receives scale w (softmax(z) - y), y the one-hot of t.
// All are rows x width; targets are in [0, width); weights may be null, for 1.
template <class V>
double softmax_cross_entropy(int64_t rows, int64_t width, const V* logits, const int64_t* targets,
                             const V* weights, V scale, V* gradient, int threads);

// Rows whose largest logit, of equal ones the first, is that of the target. As for NumPy, the first
// NaN is the largest.
template <class V>
int64_t count_right(int64_t rows, int64_t width, const V* logits, const int64_t* targets);

}  // namespace hoplite
