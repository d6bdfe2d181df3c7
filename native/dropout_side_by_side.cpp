// Dropout products with runs in the lanes of a vector. Dense operands are packed, so that a row of
// a whole vector of runs is one piece of memory: [columns, classes, lanes].
#include "buffer.h"
#include "dispatch.h"
#include "dropout_parts.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t pack_rows = 256;  // per task: they stay in cache from group to group

// The runs of one vector.
template <class V>
struct Lanes {
    static constexpr int most = 16;
    int64_t first, runs;
    uint32_t key0[most], key1[most], threshold[most];
    V scale[most];
};

template <class V, class I>
std::vector<Lanes<V>> deal_out(const DropoutTask<V, I>& task) {
    const int64_t lanes = kernels<V, I>().lanes;
    std::vector<Lanes<V>> groups;
    for (int64_t first = task.first; first < task.last; first += lanes) {
        Lanes<V> group{first, std::min(lanes, task.last - first), {}, {}, {}, {}};
        for (int64_t lane = 0; lane < group.runs; ++lane) {
            const KeepRule& rule = task.args.rules[first + lane];
            group.key0[lane] = rule.key0, group.key1[lane] = rule.key1;
            group.threshold[lane] = rule.threshold;
            group.scale[lane] = V(task.args.scales[first + lane]);
        }
        groups.push_back(group);
    }
    return groups;
}

// Rows [begin, end) of s for one vector of runs.
template <class V, class I>
void multiply_lanes(const DropoutTask<V, I>& task, const Lanes<V>& group, const V* packed,
                    int64_t begin, int64_t end) {
    const int64_t lanes = kernels<V, I>().lanes, m = task.args.width;
    LanesTile<V, I> tile{};
    tile.numbering = task.numbering, tile.need_high = task.need_high;
    tile.values = task.s.values;
    tile.key0 = group.key0, tile.key1 = group.key1, tile.threshold = group.threshold;
    tile.scale = group.scale;
    tile.x_stride = m * lanes, tile.runs = group.runs;
    tile.y_row = task.out_row(), tile.y_run = task.out_run();
    tile.prefetch = task.s.columns * m * lanes * int64_t(sizeof(V)) >= prefetch_min_bytes;
    tile.x = packed;
    tile.y = task.args.out + group.first * tile.y_run;
    tile.width = m;
    kernels<V, I>().dropout_lanes(tile, begin, end);
}

}  // namespace

template <class V, class I>
void side_by_side(const DropoutTask<V, I>& task) {
    const std::vector<Lanes<V>> groups = deal_out(task);
    const int64_t count = int64_t(groups.size()), columns = task.s.columns;
    const int64_t size = columns * task.args.width * kernels<V, I>().lanes;
    Buffer<V> packed(count * size);
    const int64_t pieces = (columns + pack_rows - 1) / pack_rows;
    parallel_for(pieces * count, task.threads, [&](int64_t i, int) {
        const int64_t piece = i / count, group = i % count;
        kernels<V, I>().pack_lanes(task.dense(groups[group].first, groups[group].runs),
                                   piece * pack_rows, std::min((piece + 1) * pack_rows, columns),
                                   packed.data() + group * size);
    });
    const int64_t blocks = int64_t(task.cuts.size()) - 1;
    parallel_for(blocks * count, task.threads, [&](int64_t i, int) {
        const int64_t block = i / count, group = i % count;  // a block stays in cache meanwhile
        multiply_lanes(task, groups[group], packed.data() + group * size, task.cuts[block],
                       task.cuts[block + 1]);
    });
}

template void side_by_side(const DropoutTask<float, int32_t>&);
template void side_by_side(const DropoutTask<float, int64_t>&);
template void side_by_side(const DropoutTask<double, int32_t>&);
template void side_by_side(const DropoutTask<double, int64_t>&);

}  // namespace hoplite
