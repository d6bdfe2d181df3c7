// Dropout products with hundreds of columns, one run at a time.
//
// The nonzeros that the run keeps become a matrix of their own, so what is dropped costs nothing.
// Then threads take slabs of columns: a slab of the dense operand, packed, stays in the caches while
// all rows of the matrix pass over it. Unpacked, its rows are pages apart.
#include "buffer.h"
#include "dispatch.h"
#include "dropout_parts.h"
#include "parallel.h"

namespace hoplite {

namespace {

// The kept nonzeros, block of rows by block: the part of each begins where its nonzeros begin in s.
// Block b has a bound more than rows, so row r of it ends at bounds[r + b + 1].
template <class V, class I>
struct Kept {
    std::vector<int64_t> bounds;
    std::vector<I> indices;
    std::vector<V> values;
};

template <class V, class I>
Kept<V, I> kept_nonzeros(const DropoutTask<V, I>& task, int64_t run) {
    const CsrView<V, I>& s = task.s;
    const int64_t blocks = int64_t(task.cuts.size()) - 1;
    Kept<V, I> kept{std::vector<int64_t>(s.rows + blocks), std::vector<I>(s.nnz),
                    std::vector<V>(s.nnz)};
    parallel_for(blocks, task.threads, [&](int64_t block, int) {
        const int64_t begin = task.cuts[block], end = task.cuts[block + 1];
        const int64_t base = s.indptr[begin], count = s.indptr[end] - base;
        std::vector<uint32_t> lows(count), highs(task.need_high ? count : 0);
        std::vector<V> dropped(count);
        uint32_t *low = lows.data(), *high = task.need_high ? highs.data() : nullptr;
        kernels<V, I>().number_elements(task.numbering, begin, end, low, high);
        kernels<V, I>().drop_values(task.args.rules[run], V(task.args.scales[run]),
                                    s.values + base, low, high, count, dropped.data());
        int64_t at = base;
        for (int64_t row = begin; row < end; ++row) {
            kept.bounds[row + block] = at;
            for (int64_t k = s.indptr[row]; k < s.indptr[row + 1]; ++k) {
                kept.indices[at] = s.indices[k];
                kept.values[at] = dropped[k - base];
                at += dropped[k - base] != V(0);
            }
        }
        kept.bounds[end + block] = at;
    });
    return kept;
}

}  // namespace

template <class V, class I>
void wide_run(const DropoutTask<V, I>& task, int64_t run) {
    const CsrView<V, I>& s = task.s;
    const int64_t blocks = int64_t(task.cuts.size()) - 1;
    const bool whole = task.args.rules[run].threshold == 0;
    const Kept<V, I> kept = whole ? Kept<V, I>{} : kept_nonzeros(task, run);
    constexpr int64_t step = max_tile_bytes / int64_t(sizeof(V));
    const int64_t m = task.args.width, slabs = (m + step - 1) / step;
    Buffer<V> room(task.threads * s.columns * step);
    parallel_for(slabs, task.threads, [&](int64_t slab, int worker) {
        const int64_t first = slab * step, used = std::min(step, m - first);
        V* packed = room.data() + worker * s.columns * step;
        const V* dense = task.args.dense + run * task.args.dense_run + first;
        for (int64_t row = 0; row < s.columns; ++row) {
            std::copy_n(dense + row * task.args.dense_row, used, packed + row * step);
            std::fill_n(packed + row * step + used, step - used, V(0));
        }
        SpmmTile<V, I> tile{};
        tile.scale = V(1);
        tile.x = packed, tile.x_stride = step, tile.width = used;
        tile.y = task.args.out + run * task.out_run() + first, tile.y_stride = task.out_row();
        tile.last = -1;  // every packed row is a whole tile wide, so no load passes the end
        tile.prefetch = s.columns * step * int64_t(sizeof(V)) >= prefetch_min_bytes;
        tile.indptr = s.indptr, tile.indices = s.indices, tile.values = s.values;
        tile.nnz = s.nnz;
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t begin = task.cuts[block], end = task.cuts[block + 1];
            if (!whole) {
                tile.indptr = kept.bounds.data() + block;
                tile.indices = kept.indices.data(), tile.values = kept.values.data();
                tile.nnz = kept.bounds[end + block];
            }
            kernels<V, I>().spmm_rows(tile, begin, end);
        }
    });
}

template void wide_run(const DropoutTask<float, int32_t>&, int64_t);
template void wide_run(const DropoutTask<float, int64_t>&, int64_t);
template void wide_run(const DropoutTask<double, int32_t>&, int64_t);
template void wide_run(const DropoutTask<double, int64_t>&, int64_t);

}  // namespace hoplite
