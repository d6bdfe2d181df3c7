// The ways to compute some of the runs of dropout_spmm. The first and the last give the same bits.
#pragma once
#include "dropout_spmm.h"

namespace hoplite {

// What both need to know.
template <class V, class I>
struct DropoutTask {
    const CsrView<V, I>& s;
    const DropoutArguments<V>& args;
    int64_t first, last;        // the runs
    std::vector<int64_t> cuts;  // blocks of rows
    Numbering<I> numbering;
    bool need_high;             // some element number does not fit into 32 bits
    int threads;
    // From `run` on; the rows are those of the dense operand.
    RunsView<V> dense(int64_t run, int64_t runs) const {
        const V* x = args.dense + run * args.dense_run;
        return {x, args.dense_row, args.dense_run, runs, args.width};
    }
    // Elements from one row, and from one run, of the output to the next.
    int64_t out_row() const { return args.transposed ? args.width : args.runs * args.width; }
    int64_t out_run() const { return args.transposed ? s.rows * args.width : args.width; }
};

// One after the other: hash a block of nonzeros, multiply a tile of the run's columns.
template <class V, class I>
void run_by_run(const DropoutTask<V, I>& task);

// Likewise for hundreds of columns: a slab of the dense operand's columns at a time.
template <class V, class I>
void wide_run(const DropoutTask<V, I>& task, int64_t run);

// A vector of runs at a time; at most max_tile_bytes / sizeof(V) columns each.
template <class V, class I>
void side_by_side(const DropoutTask<V, I>& task);

}  // namespace hoplite
