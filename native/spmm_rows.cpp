// Y = scale * (S X) + a Z + b W for some rows and one tile of columns.
//
// The accumulators of a row stay in vector registers while its nonzeros pass by. Each output
// element is the same chain of fmadd over the nonzeros in their stored order, whatever the tile;
// in a tile that asks for it, the same four chains (by position in the row), added at the end.
#include <utility>

#include "kernels.h"
#include "layout.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int prefetch_distance = 16;  // nonzeros ahead
constexpr int cache_line = 64;

// What is added to a row's sums: the vector that holds columns [At, Width) of the tile.
template <int At, int Width, class T, class V, class I>
inline void finish(const SpmmTile<V, I>& t, int64_t row, T sum, T a) {
    constexpr int lanes = int(sizeof(T) / sizeof(V));
    constexpr int valid = Width - At < lanes ? Width - At : lanes;
    const int64_t at = row * t.y_stride + At;
    T result = sum * (t.scale - T{});
    if (t.z) result = fmadd(a, load<T, valid>(t.z + at), result);
    if (t.w) result = fmadd(t.b - T{}, load<T, valid>(t.w + at), result);
    store<valid>(t.y + at, result);
}

// One row of a tile of a single vector as four chains; dropout_lanes.cpp has to do the same.
template <class T, class V, class I, int Width>
inline T four_chains(const SpmmTile<V, I>& t, int64_t k, int64_t stop) {
    constexpr int chains = 4, lanes = int(sizeof(T) / sizeof(V));
    T part[chains] = {};
    const auto step = [&](int64_t at, T& sum) {
        const int64_t column = t.indices[at];
        const V* x = t.x + column * t.x_stride;
        if (lanes > Width && column == t.last) x = t.last_row;
        sum = fmadd(t.values[at - t.first_value] - T{}, load<T, lanes>(x), sum);
    };
    for (; k + chains <= stop; k += chains)
        step(k, part[0]), step(k + 1, part[1]), step(k + 2, part[2]), step(k + 3, part[3]);
    for (int j = 0; k < stop; ++k, ++j) step(k, part[j]);
    return (part[0] + part[1]) + (part[2] + part[3]);
}

// As many rows at a time as there are `Each`, of a single vector each, where their lengths ascend:
// the rows' chains do not wait for one another, and the end of a row is no surprise.
template <class V, class I, int Width, int... Each>
int64_t rows_in_step(const SpmmTile<V, I>& tile, int64_t row, int64_t end,
                     std::integer_sequence<int, Each...>) {
    using T = Vector<V, Width>;
    const SpmmTile<V, I> t = tile;  // a copy: the stores to y cannot change it
    const T a = t.z ? load<T, Width>(t.a) : T{};
    const auto add = [&](T sum, int64_t k) {
        return fmadd(t.values[k] - T{}, load<T, Width>(t.x + int64_t(t.indices[k]) * Width), sum);
    };
    for (constexpr int rows = sizeof...(Each); row + rows <= end; row += rows) {
        const int64_t* starts = t.indptr + row;
        const int64_t common = starts[1] - starts[0];
        int64_t k[] = {starts[Each]...};
        T sum[rows] = {};
        for (int64_t i = 0; i < common; ++i) ((sum[Each] = add(sum[Each], k[Each] + i)), ...);
        const auto rest = [&](T& total, int64_t first, int64_t stop) {
            for (; first < stop; ++first) total = add(total, first);
        };
        (rest(sum[Each], k[Each] + common, starts[Each + 1]), ...);
        (finish<0, Width>(t, row + Each, sum[Each], a), ...);
    }
    return row;
}

template <class V, class I, int Width, bool Prefetch, int... Each>
void rows_of_tile(const SpmmTile<V, I>& tile, int64_t begin, int64_t end,
                  std::integer_sequence<int, Each...>) {
    constexpr Layout<V> layout(Width);
    constexpr int lanes = layout.lanes;
    using T = Vector<V, lanes>;
    const SpmmTile<V, I> t = tile;  // a copy: the stores to y cannot change it
    T a[layout.count] = {};
    if (t.z)
        ((a[Each] = load<T, (Width - Each * lanes < lanes ? Width - Each * lanes : lanes)>(
              t.a + Each * lanes)), ...);
    int64_t k = t.indptr[begin];
    for (int64_t row = begin; row < end; ++row) {
        T sum[layout.count] = {};
        if (layout.chains() == 4 && t.four_chains) {
            sum[0] = four_chains<T, V, I, Width>(t, k, t.indptr[row + 1]);
            k = t.indptr[row + 1];
        }
        for (const int64_t stop = t.indptr[row + 1]; k < stop; ++k) {
            if (Prefetch) {
                const int64_t ahead = k + prefetch_distance < t.nnz ? k + prefetch_distance : k;
                const V* next = t.x + t.indices[ahead] * t.x_stride;
                for (int j = 0; j < Width; j += cache_line / int(sizeof(V)))
                    __builtin_prefetch(next + j);
            }
            const int64_t column = t.indices[k];
            const V* x = t.x + column * t.x_stride;
            if (layout.count * lanes > Width && column == t.last) x = t.last_row;
            const T value = t.values[k - t.first_value] - T{};  // the same in all lanes
            ((sum[Each] = fmadd(value, load<T, lanes>(x + Each * lanes), sum[Each])), ...);
        }
        (finish<Each * lanes, Width>(t, row, sum[Each], a[Each]), ...);
    }
}

template <class V, class I, int Width>
void rows_of_width(const SpmmTile<V, I>& tile, int64_t begin, int64_t end) {
    constexpr Layout<V> layout(Width);
    constexpr std::make_integer_sequence<int, layout.count> each;
    if constexpr (layout.count == 1 && layout.lanes == Width && Width > 1)
        if (tile.by_length)
            begin = rows_in_step<V, I, Width>(tile, begin, end,
                                              std::make_integer_sequence<int, 4>());
    if (tile.prefetch)
        rows_of_tile<V, I, Width, true>(tile, begin, end, each);
    else
        rows_of_tile<V, I, Width, false>(tile, begin, end, each);
}

template <class V, class I, int... Less>
void choose_width(const SpmmTile<V, I>& tile, int64_t begin, int64_t end,
                  std::integer_sequence<int, Less...>) {
    using Function = void (*)(const SpmmTile<V, I>&, int64_t, int64_t);
    static constexpr Function of_width[] = {rows_of_width<V, I, Less + 1>...};
    of_width[tile.width - 1](tile, begin, end);
}

template <class V, class I>
void spmm_rows(const SpmmTile<V, I>& tile, int64_t begin, int64_t end) {
    if (begin < end && tile.width > 0)
        choose_width(tile, begin, end,
                     std::make_integer_sequence<int, max_tile_bytes / int(sizeof(V))>());
}

template void spmm_rows(const SpmmTile<float, int32_t>&, int64_t, int64_t);
template void spmm_rows(const SpmmTile<float, int64_t>&, int64_t, int64_t);
template void spmm_rows(const SpmmTile<double, int32_t>&, int64_t, int64_t);
template void spmm_rows(const SpmmTile<double, int64_t>&, int64_t, int64_t);

}  // namespace hoplite::HOPLITE_ARCH
