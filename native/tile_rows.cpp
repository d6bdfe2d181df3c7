// Rows of packed tiles: filled from a matrix, written back to it, and weighed.
#include <utility>

#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

// ---- pack and unpack ----

template <class V, int Width>
void pack_width(int64_t count, const int64_t* order, const V* matrix, int64_t apart, V* tile) {
    constexpr int64_t stride = packed_stride<V>(Width);
    for (int64_t i = 0; i < count; ++i, tile += stride) {
        const int64_t row = order ? order[i] : i;
        for (int64_t j = 0; j < stride; ++j) tile[j] = V(0);
        if (row >= 0) __builtin_memcpy(tile, matrix + row * apart, Width * sizeof(V));
    }
}

template <class V, int Width>
void unpack_width(int64_t count, const int64_t* order, const V* tile, int64_t apart, V* matrix) {
    constexpr int64_t stride = packed_stride<V>(Width);
    for (int64_t i = 0; i < count; ++i, tile += stride)
        if (order[i] >= 0) __builtin_memcpy(matrix + order[i] * apart, tile, Width * sizeof(V));
}

template <class V, int... Less>
void choose_pack(int64_t count, const int64_t* order, const V* matrix, int64_t apart,
                 int64_t width, V* tile, std::integer_sequence<int, Less...>) {
    using Function = void (*)(int64_t, const int64_t*, const V*, int64_t, V*);
    static constexpr Function of_width[] = {pack_width<V, Less + 1>...};
    of_width[width - 1](count, order, matrix, apart, tile);
}

template <class V, int... Less>
void choose_unpack(int64_t count, const int64_t* order, const V* tile, int64_t width,
                   int64_t apart, V* matrix, std::integer_sequence<int, Less...>) {
    using Function = void (*)(int64_t, const int64_t*, const V*, int64_t, V*);
    static constexpr Function of_width[] = {unpack_width<V, Less + 1>...};
    of_width[width - 1](count, order, tile, apart, matrix);
}

template <class V>
using Widths = std::make_integer_sequence<int, max_packed_bytes / int(sizeof(V))>;

template <class V>
void pack_rows(int64_t count, const int64_t* order, const V* matrix, int64_t apart, int64_t width,
               V* tile) {
    choose_pack(count, order, matrix, apart, width, tile, Widths<V>());
}

template <class V>
void unpack_rows(int64_t count, const int64_t* order, const V* tile, int64_t width, int64_t apart,
                 V* matrix) {
    choose_unpack(count, order, tile, width, apart, matrix, Widths<V>());
}

// ---- weigh ----

// Column sums run in V within a block of rows, row r in chain r mod 4, and in double over the
// blocks: the same for any stride.
constexpr int64_t block_rows = 512;
constexpr int chains = slice_rows;

template <class V, int Stride>
void weigh(int64_t n, const V* g, const V* other, const V* scales, V* out, double* dots) {
    constexpr int full = vector_bytes / int(sizeof(V)), lanes = Stride < full ? Stride : full;
    using T = Vector<V, lanes>;
    for (int j = 0; j < Stride; ++j) dots[j] = 0;
    for (int64_t begin = 0; begin < n; begin += block_rows) {
        const int64_t end = begin + block_rows < n ? begin + block_rows : n;
        for (int first = 0; first < Stride; first += lanes) {
            const T a = load<T, lanes>(scales + first);
            const auto add = [&](int64_t row, T sum) {
                const int64_t k = row * Stride + first;
                const T value = load<T, lanes>(g + k);
                store<lanes>(out + k, fmadd(a, value, load<T, lanes>(out + k)));
                return fmadd(value, load<T, lanes>(other + k), sum);
            };
            T sum[chains] = {};
            for (int64_t row = begin; row < end; row += chains)
                for (int c = 0; c < chains; ++c) sum[c] = add(row + c, sum[c]);
            const T total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            for (int j = 0; j < lanes; ++j) dots[first + j] += double(total[j]);
        }
    }
}

template <class V>
void weigh_rows(int64_t n, int64_t stride, const V* g, const V* other, const V* scales, V* out,
                double* dots) {
    constexpr int vector = 16 / int(sizeof(V));  // strides are 1, 2 or 4 of these
    if (stride == vector)
        weigh<V, vector>(n, g, other, scales, out, dots);
    else if (stride == 2 * vector)
        weigh<V, 2 * vector>(n, g, other, scales, out, dots);
    else
        weigh<V, 4 * vector>(n, g, other, scales, out, dots);
}

#define HOPLITE_INSTANTIATE(V)                                                               \
    template void pack_rows(int64_t, const int64_t*, const V*, int64_t, int64_t, V*);        \
    template void unpack_rows(int64_t, const int64_t*, const V*, int64_t, int64_t, V*);      \
    template void weigh_rows(int64_t, int64_t, const V*, const V*, const V*, V*, double*);
HOPLITE_INSTANTIATE(float)
HOPLITE_INSTANTIATE(double)

}  // namespace hoplite::HOPLITE_ARCH
