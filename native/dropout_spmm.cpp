// Sparse features times weights under input dropout, and its transpose.
//
// The masked matrix never exists: masks are hashed a few nonzeros at a time and used at once. Every
// output element is summed by one thread in stored order, so threads do not change its bits; nor
// does the company of other runs (dropout_parts.h).
#include "dropout_spmm.h"

#include "dispatch.h"
#include "dropout_parts.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t block_nonzeros = 8192;  // buffers of a block fit in the L2 cache
constexpr int64_t wide_bytes = 1024;      // of a row of the dense operand

template <class V, class I>
bool beyond_32_bits(const CsrView<V, I>& s, const DropoutArguments<V>& args) {
    const int64_t n = args.transposed ? s.columns : s.rows;
    const int64_t d = args.transposed ? s.rows : s.columns;
    int64_t most = n - 1;
    if (args.row_numbers && n > 0)
        most = *std::max_element(args.row_numbers, args.row_numbers + n);
    return (most + 1) * d > int64_t(1) << 32;
}

// How many of the runs go side by side. A single run wastes lanes if it has few columns, and gains
// nothing from company if it has many; so does a vector that is not full, the more, the more
// columns it multiplies. (Measured on Cora and Pubmed; two lanes were never worth it.)
template <class V, class I>
int64_t runs_in_lanes(const DropoutArguments<V>& args) {
    const int64_t lanes = kernels<V, I>().lanes, rest = args.runs % lanes;
    if (lanes < 4 || args.width > 2 * lanes) return 0;
    return rest >= std::min(lanes, args.width + 4) ? args.runs : args.runs - rest;
}

}  // namespace

template <class V, class I>
void dropout_spmm(const CsrView<V, I>& s, const DropoutArguments<V>& args, int threads) {
    if (s.rows == 0 || args.runs == 0 || args.width == 0) return;
    const int64_t blocks = std::min(s.rows, s.nnz / block_nonzeros + 1);
    const int64_t d = args.transposed ? s.rows : s.columns;
    const Company company(threads, (s.nnz + s.rows) * args.runs * (args.width + 8));
    bool any_dropped = false;
    for (int64_t run = 0; run < args.runs; ++run) any_dropped |= args.rules[run].threshold != 0;
    DropoutTask<V, I> task{s,
                           args,
                           0,
                           any_dropped ? runs_in_lanes<V, I>(args) : 0,
                           balanced_cuts(s, blocks),
                           {s.indptr, s.indices, args.transposed, d, args.row_numbers},
                           any_dropped && beyond_32_bits(s, args),
                           company.threads};
    if (args.width * int64_t(sizeof(V)) >= wide_bytes) {
        for (int64_t run = 0; run < args.runs; ++run) wide_run(task, run);
        return;
    }
    side_by_side(task);
    task.first = task.last, task.last = args.runs;
    run_by_run(task);
}

template void dropout_spmm(const CsrView<float, int32_t>&, const DropoutArguments<float>&, int);
template void dropout_spmm(const CsrView<float, int64_t>&, const DropoutArguments<float>&, int);
template void dropout_spmm(const CsrView<double, int32_t>&, const DropoutArguments<double>&, int);
template void dropout_spmm(const CsrView<double, int64_t>&, const DropoutArguments<double>&, int);

}  // namespace hoplite
