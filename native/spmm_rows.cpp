// Y = scale * (S X) + a Z + b W for some rows and one tile of columns.
//
// The accumulators of a row stay in vector registers while its nonzeros pass by. Each output
// element is the same chain of fmadd over the nonzeros in their stored order, whatever the tile.
#include <utility>

#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int prefetch_distance = 16;  // nonzeros ahead
constexpr int cache_line = 64;

// `width` columns as `count` vectors of `lanes`. The lanes beyond the width read the following row
// of X (never further) and are thrown away.
template <class V>
struct Layout {
    int lanes, count;
    constexpr explicit Layout(int width) : lanes(1), count(1) {
        const int full = vector_bytes / int(sizeof(V)), least = 16 / int(sizeof(V));
        if (width == 1) return;
        lanes = least;
        while (lanes < width && lanes < full) lanes *= 2;
        if (lanes * sizeof(V) == 64 && width % lanes != 0) lanes /= 2;  // a shorter broken vector
        count = (width + lanes - 1) / lanes;
    }
};

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
            const T value = t.values[k] - T{};  // the same in all lanes
            ((sum[Each] = fmadd(value, load<T, lanes>(x + Each * lanes), sum[Each])), ...);
        }
        (finish<Each * lanes, Width>(t, row, sum[Each], a[Each]), ...);
    }
}

template <class V, class I, int Width>
void rows_of_width(const SpmmTile<V, I>& tile, int64_t begin, int64_t end) {
    constexpr Layout<V> layout(Width);
    constexpr std::make_integer_sequence<int, layout.count> each;
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
