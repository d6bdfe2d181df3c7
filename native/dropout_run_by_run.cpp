// Dropout products of single runs: a block of nonzeros is hashed into a small buffer of dropped
// values, and the ordinary row kernel multiplies from there while the buffer is in cache.
#include <memory>

#include "dispatch.h"
#include "dropout_parts.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t runs_per_task = 16;  // that share one block's element numbers

// One run's output for the rows [begin, end) of s, from its own dense operand, whose rows lie
// together; `values` are those from first_value on, dropped.
template <class V, class I>
void multiply_run(const DropoutTask<V, I>& task, const V* dense, const V* values,
                  int64_t first_value, int64_t run, int64_t begin, int64_t end) {
    const CsrView<V, I>& s = task.s;
    const int64_t m = task.args.width, step = max_tile_bytes / int64_t(sizeof(V));
    for (int64_t column = 0; column < m; column += step) {
        V last_row[max_tile_bytes / sizeof(V)] = {};
        SpmmTile<V, I> tile{};
        tile.indptr = s.indptr, tile.indices = s.indices, tile.nnz = s.nnz;
        tile.values = values, tile.first_value = first_value;
        tile.scale = V(1);
        tile.width = std::min(step, m - column);
        tile.x_stride = m;
        tile.y_stride = task.out_row();
        tile.x = dense + column;
        tile.y = task.args.out + column + run * task.out_run();
        tile.prefetch = s.columns * m * int64_t(sizeof(V)) >= prefetch_min_bytes;
        tile.four_chains = true;  // a run's tile is as wide whoever is beside it
        tile.last = -1;
        if (run == task.args.runs - 1 && s.columns > 0) {  // the others do not end where memory may
            tile.last = s.columns - 1, tile.last_row = last_row;
            std::copy_n(tile.x + tile.last * tile.x_stride, tile.width, last_row);
        }
        kernels<V, I>().spmm_rows(tile, begin, end);
    }
}

}  // namespace

template <class V, class I>
void run_by_run(const DropoutTask<V, I>& task) {
    const CsrView<V, I>& s = task.s;
    const KeepRule* rules = task.args.rules;
    const int64_t blocks = int64_t(task.cuts.size()) - 1;
    int64_t longest = 0;
    for (int64_t block = 0; block < blocks; ++block)
        longest = std::max(longest, s.indptr[task.cuts[block + 1]] - s.indptr[task.cuts[block]]);
    const bool any_dropped = std::any_of(rules + task.first, rules + task.last,
                                         [](const KeepRule& rule) { return rule.threshold != 0; });
    const std::size_t room = any_dropped ? std::size_t(task.threads) * longest : 0;
    std::vector<uint32_t> lows(room), highs(task.need_high ? room : 0);
    std::vector<V> dropped(room);
    // One run's rows should lie together: they are gathered many times.
    const int64_t size = s.columns * task.args.width;
    const bool together = task.args.dense_row == task.args.width;
    const std::unique_ptr<V[]> packed(together ? nullptr : new V[(task.last - task.first) * size]);
    if (!together)
        parallel_for(task.last - task.first, task.threads, [&](int64_t i, int) {
            kernels<V, I>().pack_rows(task.dense(task.first + i, 1), 0, s.columns,
                                      packed.get() + i * size);
        });
    const int64_t groups = (task.last - task.first + runs_per_task - 1) / runs_per_task;
    parallel_for(blocks * groups, task.threads, [&](int64_t i, int worker) {
        const int64_t block = i / groups, first = task.first + i % groups * runs_per_task;
        const int64_t begin = task.cuts[block], end = task.cuts[block + 1];
        const int64_t base = s.indptr[begin], count = s.indptr[end] - base;
        uint32_t* low = lows.data() + worker * longest;
        uint32_t* high = task.need_high ? highs.data() + worker * longest : nullptr;
        V* values = dropped.data() + worker * longest;
        bool numbered = false;
        for (int64_t run = first; run < std::min(first + runs_per_task, task.last); ++run) {
            const V* dense = together ? task.args.dense + run * task.args.dense_run
                                      : packed.get() + (run - task.first) * size;
            if (rules[run].threshold == 0) {
                multiply_run(task, dense, s.values, 0, run, begin, end);
                continue;
            }
            if (!numbered) kernels<V, I>().number_elements(task.numbering, begin, end, low, high);
            numbered = true;
            kernels<V, I>().drop_values(rules[run], V(task.args.scales[run]), s.values + base, low,
                                        high, count, values);
            multiply_run(task, dense, values, base, run, begin, end);
        }
    });
}

template void run_by_run(const DropoutTask<float, int32_t>&);
template void run_by_run(const DropoutTask<float, int64_t>&);
template void run_by_run(const DropoutTask<double, int32_t>&);
template void run_by_run(const DropoutTask<double, int64_t>&);

}  // namespace hoplite
