// Sparse features times weights under input dropout, and its transpose.
//
// The masked matrix never exists: a block of nonzeros is hashed into a small buffer of dropped
// values, and the ordinary row kernel multiplies from there while the buffer is in cache. Every
// output element is summed by one thread in stored order, so threads do not change its bits.
#include "dropout_spmm.h"

#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t block_nonzeros = 8192;  // buffers of a block fit in the L2 cache
constexpr int64_t runs_per_task = 16;     // that share one block's element numbers

// Whether some element number does not fit into 32 bits.
template <class V, class I>
bool beyond_32_bits(const CsrView<V, I>& s, const DropoutArguments<V>& args) {
    const int64_t n = args.transposed ? s.columns : s.rows;
    const int64_t d = args.transposed ? s.rows : s.columns;
    int64_t most = n - 1;
    if (args.row_numbers && n > 0)
        most = *std::max_element(args.row_numbers, args.row_numbers + n);
    return (most + 1) * d > int64_t(1) << 32;
}

// One run's output for the rows [begin, end) of s; `values` are those from first_value on, dropped.
template <class V, class I>
void multiply_run(const CsrView<V, I>& s, const DropoutArguments<V>& args, const V* values,
                  int64_t first_value, int64_t run, int64_t begin, int64_t end) {
    const int64_t m = args.width, d = args.transposed ? s.rows : s.columns;
    const int64_t step = max_tile_bytes / int64_t(sizeof(V));
    for (int64_t column = 0; column < m; column += step) {
        V last_row[max_tile_bytes / sizeof(V)] = {};
        SpmmTile<V, I> tile{};
        tile.indptr = s.indptr, tile.indices = s.indices, tile.nnz = s.nnz;
        tile.values = values, tile.first_value = first_value;
        tile.scale = V(1);
        tile.width = std::min(step, m - column);
        const int64_t side_by_side = args.runs * m;
        tile.x_stride = m;
        tile.y_stride = args.transposed ? m : side_by_side;
        tile.x = args.dense + column + run * s.columns * m;
        tile.y = args.out + column + run * (args.transposed ? d * m : m);
        tile.last = -1;
        tile.prefetch = s.columns * m * int64_t(sizeof(V)) >= prefetch_min_bytes;
        tile.four_chains = true;  // a run's tile is as wide whoever is beside it
        if (run == args.runs - 1 && s.columns > 0) {  // the others do not end where `dense` ends
            tile.last = s.columns - 1, tile.last_row = last_row;
            std::copy_n(tile.x + tile.last * tile.x_stride, tile.width, last_row);
        }
        kernels<V, I>().spmm_rows(tile, begin, end);
    }
}

}  // namespace

template <class V, class I>
void dropout_spmm(const CsrView<V, I>& s, const DropoutArguments<V>& args, int threads) {
    if (s.rows == 0 || args.runs == 0 || args.width == 0) return;
    threads = useful_threads(threads, (s.nnz + s.rows) * args.runs * (args.width + 8));
    const int64_t blocks = std::min(s.rows, s.nnz / block_nonzeros + 1);
    const std::vector<int64_t> cuts = balanced_cuts(s, blocks);
    int64_t longest = 0;
    for (int64_t block = 0; block < blocks; ++block)
        longest = std::max(longest, s.indptr[cuts[block + 1]] - s.indptr[cuts[block]]);
    bool any_dropped = false;
    for (int64_t run = 0; run < args.runs; ++run) any_dropped |= args.rules[run].threshold != 0;

    const std::size_t room = any_dropped ? std::size_t(threads) * longest : 0;
    const bool need_high = any_dropped && beyond_32_bits(s, args);
    const Numbering<I> numbering{s.indptr, s.indices, args.transposed,
                                 args.transposed ? s.rows : s.columns, args.row_numbers};
    std::vector<uint32_t> lows(room), highs(need_high ? room : 0);
    std::vector<V> dropped(room);
    const int64_t groups = (args.runs + runs_per_task - 1) / runs_per_task;
    parallel_for(blocks * groups, threads, [&](int64_t task, int worker) {
        const int64_t block = task / groups, first = task % groups * runs_per_task;
        const int64_t begin = cuts[block], end = cuts[block + 1], base = s.indptr[begin];
        const int64_t count = s.indptr[end] - base;
        uint32_t* low = lows.data() + worker * longest;
        uint32_t* high = need_high ? highs.data() + worker * longest : nullptr;
        V* values = dropped.data() + worker * longest;
        bool numbered = false;
        for (int64_t run = first; run < std::min(first + runs_per_task, args.runs); ++run) {
            const KeepRule& rule = args.rules[run];
            if (rule.threshold == 0) {
                multiply_run(s, args, s.values, 0, run, begin, end);
                continue;
            }
            if (!numbered) kernels<V, I>().number_elements(numbering, begin, end, low, high);
            numbered = true;
            kernels<V, I>().drop_values(rule, V(args.scales[run]), s.values + base, low, high,
                                        count, values);
            multiply_run(s, args, values, base, run, begin, end);
        }
    });
}

template void dropout_spmm(const CsrView<float, int32_t>&, const DropoutArguments<float>&, int);
template void dropout_spmm(const CsrView<float, int64_t>&, const DropoutArguments<float>&, int);
template void dropout_spmm(const CsrView<double, int32_t>&, const DropoutArguments<double>&, int);
template void dropout_spmm(const CsrView<double, int64_t>&, const DropoutArguments<double>&, int);

}  // namespace hoplite
