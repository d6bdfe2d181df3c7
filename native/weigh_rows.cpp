// out += g diag(scales) and dots = column sums of g * other, in one pass over packed tiles.
#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

// Sums run in V within a block of rows and in double over the blocks.
constexpr int64_t block_rows = 256;

template <class V, int Stride>
void weigh(int64_t n, const V* g, const V* other, const V* scales, V* out, double* dots) {
    constexpr int full = vector_bytes / int(sizeof(V)), lanes = Stride < full ? Stride : full;
    constexpr int count = Stride / lanes;
    using T = Vector<V, lanes>;
    T a[count];
    for (int c = 0; c < count; ++c) a[c] = load<T, lanes>(scales + c * lanes);
    for (int j = 0; j < Stride; ++j) dots[j] = 0;
    for (int64_t begin = 0; begin < n; begin += block_rows) {
        const int64_t end = begin + block_rows < n ? begin + block_rows : n;
        T sum[count] = {};
        for (int64_t at = begin * Stride; at < end * Stride; at += Stride)
            for (int c = 0; c < count; ++c) {
                const int64_t k = at + c * lanes;
                const T value = load<T, lanes>(g + k);
                store<lanes>(out + k, fmadd(a[c], value, load<T, lanes>(out + k)));
                sum[c] = fmadd(value, load<T, lanes>(other + k), sum[c]);
            }
        for (int c = 0; c < count; ++c)
            for (int j = 0; j < lanes; ++j) dots[c * lanes + j] += double(sum[c][j]);
    }
}

template <class V>
void weigh_rows(int64_t n, int64_t stride, const V* g, const V* other, const V* scales, V* out,
                double* dots) {
    constexpr int vector = 16 / int(sizeof(V));  // strides are 1, 2, 4 or 8 of these
    if (stride == vector)
        weigh<V, vector>(n, g, other, scales, out, dots);
    else if (stride == 2 * vector)
        weigh<V, 2 * vector>(n, g, other, scales, out, dots);
    else if (stride == 4 * vector)
        weigh<V, 4 * vector>(n, g, other, scales, out, dots);
    else
        weigh<V, 8 * vector>(n, g, other, scales, out, dots);
}

template void weigh_rows(int64_t, int64_t, const float*, const float*, const float*, float*,
                         double*);
template void weigh_rows(int64_t, int64_t, const double*, const double*, const double*, double*,
                         double*);

}  // namespace hoplite::HOPLITE_ARCH
