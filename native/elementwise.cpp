// Loops over single elements: y += c u, and one Adam step in one pass.
#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

template <class V>
void add_scaled(V c, const V* __restrict__ u, V* __restrict__ y, int64_t count) {
    for (int64_t k = 0; k < count; ++k) y[k] = fmadd(c, u[k], y[k]);
}

template <class V>
void adam(const AdamStep<V>& step, const V* __restrict__ gradient, V* __restrict__ weight,
          V* __restrict__ mean, V* __restrict__ square, int64_t count) {
    const AdamStep<V> s = step;  // a copy: the stores below cannot change it
    for (int64_t k = 0; k < count; ++k) {
        const V g = gradient[k] + s.decay * weight[k];
        const V m = mean[k] + (g - mean[k]) * V(0.1);
        const V v = square[k] * V(0.999) + g * g * V(0.001);
        const V root = sizeof(V) == 4 ? V(__builtin_sqrtf(float(v))) : V(__builtin_sqrt(double(v)));
        mean[k] = m;
        square[k] = v;
        weight[k] -= s.rate * (m / (root * s.root_factor + V(1e-8)));
    }
}

template void add_scaled(float, const float*, float*, int64_t);
template void add_scaled(double, const double*, double*, int64_t);
template void adam(const AdamStep<float>&, const float*, float*, float*, float*, int64_t);
template void adam(const AdamStep<double>&, const double*, double*, double*, double*, int64_t);

}  // namespace hoplite::HOPLITE_ARCH
