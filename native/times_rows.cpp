// Rows of a sparse matrix times a packed dense matrix of up to a cache line a row, and the product
// with their transpose.
//
// A row is summed in four chains, dealt out by position and added in pairs: one chain alone would
// wait for its own last fmadd. The order is the same for any width.
#include <utility>

#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int chains = 4;

// Vectors [First, First + sizeof...(Each)) of rows of `Width` columns, for one or two sets of
// values.
template <class V, class I, int Sets, int Width, int Stride, int Lanes, int First, int... Each>
void times_vectors(const ElementRows<V, I>& rows, const TimesTile<V>& tile,
                   std::integer_sequence<int, Each...>) {
    constexpr int vectors = sizeof...(Each);
    using T = Vector<V, Lanes>;
    const ElementRows<V, I> r = rows;  // copies: the stores to y cannot change them
    const TimesTile<V> t = tile;
    const V* const x = t.x + First * Lanes;
    for (int64_t row = 0; row < r.count; ++row) {
        T sum[Sets][chains][vectors] = {};
        const auto add = [&](int64_t k, int chain, V value, V other) {
            const V* const from = x + int64_t(r.columns[k]) * Stride;
            const T loaded[] = {load<T, Lanes>(from + Each * Lanes)...};
            const T factor = value - T{};  // the same in all lanes
            ((sum[0][chain][Each] = fmadd(factor, loaded[Each], sum[0][chain][Each])), ...);
            if constexpr (Sets == 2) {
                const T more = other - T{};
                ((sum[1][chain][Each] = fmadd(more, loaded[Each], sum[1][chain][Each])), ...);
            }
        };
        const auto add_next = [&](int64_t k, int chain) {
            add(k, chain, r.values[k], Sets == 2 ? t.other_values[k] : V(0));
        };
        int64_t k = r.starts[row] - r.first;
        const int64_t stop = r.starts[row + 1] - r.first;
        for (; k + chains <= stop; k += chains)
            add_next(k, 0), add_next(k + 1, 1), add_next(k + 2, 2), add_next(k + 3, 3);
        for (int chain = 0; k < stop; ++k, ++chain) add_next(k, chain);
        const auto finish = [&](T (&total)[chains][vectors], V* y) {
            (store<(Width - (First + Each) * Lanes < Lanes ? Width - (First + Each) * Lanes
                                                           : Lanes)>(
                 y + row * t.y_stride + (First + Each) * Lanes,
                 (total[0][Each] + total[1][Each]) + (total[2][Each] + total[3][Each])), ...);
        };
        finish(sum[0], t.y);
        if constexpr (Sets == 2) finish(sum[1], t.other_y);
    }
}

template <class V, int Width>
struct Layout {
    static constexpr int full = vector_bytes / int(sizeof(V)), stride = packed_stride<V>(Width);
    static constexpr int lanes = stride < full ? stride : full;
    static constexpr int vectors = (Width + lanes - 1) / lanes;
};

template <class V, class I, int Sets, int Width>
void times_width(const ElementRows<V, I>& rows, const TimesTile<V>& tile) {
    using L = Layout<V, Width>;
    constexpr int front = L::vectors < 2 ? L::vectors : 2;  // four chains of each in 16 registers
    times_vectors<V, I, Sets, Width, L::stride, L::lanes, 0>(
        rows, tile, std::make_integer_sequence<int, front>());
    if constexpr (L::vectors > 2)
        times_vectors<V, I, Sets, Width, L::stride, L::lanes, 2>(
            rows, tile, std::make_integer_sequence<int, L::vectors - 2>());
}

template <class V, class I, int Width, int... Each>
void add_vectors(const ElementRows<V, I>& rows, const V* y, int64_t y_stride, V* x,
                 std::integer_sequence<int, Each...>) {
    using L = Layout<V, Width>;
    using T = Vector<V, L::lanes>;
    const ElementRows<V, I> r = rows;
    for (int64_t row = 0; row < r.count; ++row, y += y_stride) {
        const T own[] = {load<T, (Width - Each * L::lanes < L::lanes ? Width - Each * L::lanes
                                                                     : L::lanes)>(
            y + Each * L::lanes)...};
        const int64_t stop = r.starts[row + 1] - r.first;
        for (int64_t k = r.starts[row] - r.first; k < stop; ++k) {
            V* const to = x + int64_t(r.columns[k]) * L::stride;
            const T factor = r.values[k] - T{};
            (store<L::lanes>(to + Each * L::lanes,
                             fmadd(factor, own[Each], load<T, L::lanes>(to + Each * L::lanes))),
             ...);
        }
    }
}

template <class V, class I, int Width>
void add_width(const ElementRows<V, I>& rows, const V* y, int64_t y_stride, V* x) {
    add_vectors<V, I, Width>(rows, y, y_stride, x,
                             std::make_integer_sequence<int, Layout<V, Width>::vectors>());
}

template <class V>
using Widths = std::make_integer_sequence<int, max_packed_bytes / int(sizeof(V))>;

template <class V, class I, int... Less>
void choose_times(const ElementRows<V, I>& rows, const TimesTile<V>& tile,
                  std::integer_sequence<int, Less...>) {
    using Function = void (*)(const ElementRows<V, I>&, const TimesTile<V>&);
    static constexpr Function alone[] = {times_width<V, I, 1, Less + 1>...};
    static constexpr Function both[] = {times_width<V, I, 2, Less + 1>...};
    (tile.other_values ? both : alone)[tile.width - 1](rows, tile);
}

template <class V, class I, int... Less>
void choose_add(const ElementRows<V, I>& rows, const V* y, int64_t y_stride, int64_t width, V* x,
                std::integer_sequence<int, Less...>) {
    using Function = void (*)(const ElementRows<V, I>&, const V*, int64_t, V*);
    static constexpr Function of_width[] = {add_width<V, I, Less + 1>...};
    of_width[width - 1](rows, y, y_stride, x);
}

template <class V, class I>
void times_rows(const ElementRows<V, I>& rows, const TimesTile<V>& tile) {
    choose_times(rows, tile, Widths<V>());
}

template <class V, class I>
void add_rows(const ElementRows<V, I>& rows, const V* y, int64_t y_stride, int64_t width, V* x) {
    choose_add(rows, y, y_stride, width, x, Widths<V>());
}

#define HOPLITE_INSTANTIATE(V, I)                                        \
    template void times_rows(const ElementRows<V, I>&, const TimesTile<V>&); \
    template void add_rows(const ElementRows<V, I>&, const V*, int64_t, int64_t, V*);
HOPLITE_INSTANTIATE(float, int32_t)
HOPLITE_INSTANTIATE(float, int64_t)
HOPLITE_INSTANTIATE(double, int32_t)
HOPLITE_INSTANTIATE(double, int64_t)

}  // namespace hoplite::HOPLITE_ARCH
