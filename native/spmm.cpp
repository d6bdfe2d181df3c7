// Y = scale * (S X) + Z diag(a) + b W + c U, a tile of columns at a time, packed or not.
#include "spmm.h"

#include <algorithm>
#include <cstring>

#include "buffer.h"
#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

// Packing copies one cache line per row of X into a dense slab before it is gathered from. The
// slab is small enough for the last-level cache and for huge pages where X itself is not, which
// measured 1.4x (power law) to 2x (uniform) on 233k nodes, 20M edges, 128 columns. It pays when
// X is beyond the caches, and each of its rows is read several times.
constexpr int64_t packed_tile_bytes = 64;
constexpr int64_t pack_min_bytes = int64_t(16) << 20;
constexpr int64_t pack_min_degree = 12;

// More pieces than threads, so that a piece with many cache misses does not delay the end.
constexpr int64_t pieces_per_thread = 16;

}  // namespace

template <class V, class I>
void spmm(const CsrView<V, I>& s, const SpmmArguments<V>& args, int threads) {
    const int64_t width = args.width;
    if (s.rows == 0 || width == 0) return;
    const Team team(threads, (s.nnz + s.rows) * width);
    threads = team.threads;
    const int64_t pieces = threads == 1 ? 1 : std::min(s.rows, threads * pieces_per_thread);
    const std::vector<int64_t> cuts = balanced_cuts(s, pieces);
    const auto rows = kernels<V, I>().spmm_rows;

    const bool pack = s.columns * width * int64_t(sizeof(V)) >= pack_min_bytes &&
                      s.nnz >= pack_min_degree * s.columns;
    const int64_t step = (pack ? packed_tile_bytes : max_tile_bytes) / int64_t(sizeof(V));
    Room room(Room::bytes<V>(pack ? s.columns * step : 0));
    V* const slab = room.take<V>(pack ? s.columns * step : 0);
    if (pack) prefer_huge_pages(args.y, std::size_t(s.rows * width) * sizeof(V));
    V last_row[max_tile_bytes / sizeof(V)] = {};

    for (int64_t column = 0; column < width; column += step) {
        SpmmTile<V, I> tile{};
        tile.indptr = s.indptr, tile.indices = s.indices, tile.values = s.values, tile.nnz = s.nnz;
        tile.width = std::min(step, width - column);
        tile.last = -1;
        tile.prefetch = s.columns * width * int64_t(sizeof(V)) >= prefetch_min_bytes;
        tile.y = args.y + column, tile.y_stride = width;
        tile.scale = args.scale, tile.b = args.b;
        if (args.z) tile.z = args.z + column, tile.a = args.a + column;
        if (args.w) tile.w = args.w + column;
        if (pack) {
            tile.x = slab, tile.x_stride = step;
            const int64_t bytes = tile.width * int64_t(sizeof(V));
            parallel_for(threads, threads, [&](int64_t part, int) {
                const int64_t stop = s.columns * (part + 1) / threads;
                for (int64_t row = s.columns * part / threads; row < stop; ++row)
                    std::memcpy(slab + row * step, args.x + row * width + column, bytes);
            });
        } else {
            tile.x = args.x + column, tile.x_stride = width;
            if (s.columns > 0) {
                tile.last = s.columns - 1, tile.last_row = last_row;
                std::copy_n(tile.x + tile.last * width, tile.width, last_row);
            }
        }
        parallel_for(pieces, threads,
                     [&](int64_t piece, int) { rows(tile, cuts[piece], cuts[piece + 1]); });
    }
    // Apart from the products: few bases need it, and a test of it in their loops costs them all.
    if (args.u)
        parallel_for(pieces, threads, [&](int64_t piece, int) {
            const int64_t begin = cuts[piece] * width, count = cuts[piece + 1] * width - begin;
            kernels<V, I>().add_scaled(args.c, args.u + begin, args.y + begin, count);
        });
}

template void spmm(const CsrView<float, int32_t>&, const SpmmArguments<float>&, int);
template void spmm(const CsrView<float, int64_t>&, const SpmmArguments<float>&, int);
template void spmm(const CsrView<double, int32_t>&, const SpmmArguments<double>&, int);
template void spmm(const CsrView<double, int64_t>&, const SpmmArguments<double>&, int);

}  // namespace hoplite
