#pragma once
#include <cstdint>

namespace hoplite {

// Adam for R runs whose tensors are R consecutive stretches of `size`; lr and decay per run.
template <class V>
void adam_runs(int64_t runs, int64_t size, const V* gradient, V* weight, V* mean, V* square,
               const double* lr, const double* decay, int64_t steps, int threads);

}  // namespace hoplite
