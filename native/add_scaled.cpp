// y += c u, element by element.
#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

template <class V>
void add_scaled(V c, const V* __restrict__ u, V* __restrict__ y, int64_t count) {
    for (int64_t k = 0; k < count; ++k) y[k] = fmadd(c, u[k], y[k]);
}

template void add_scaled(float, const float*, float*, int64_t);
template void add_scaled(double, const double*, double*, int64_t);

}  // namespace hoplite::HOPLITE_ARCH
