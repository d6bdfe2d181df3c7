// Dense operands of several runs, rearranged for the row kernels to gather.
#include "kernels.h"
#include "layout.h"

namespace hoplite::HOPLITE_ARCH {

template <class V>
void pack_rows(const RunsView<V>& view, int64_t begin, int64_t end, V* __restrict__ out) {
    const RunsView<V> v = view;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t c = 0; c < v.width; ++c) out[row * v.width + c] = v.x[row * v.row + c];
}

template <class V>
void pack_lanes(const RunsView<V>& view, int64_t begin, int64_t end, V* __restrict__ out) {
    constexpr int lanes = run_lanes<V>;
    const RunsView<V> v = view;
    for (int64_t row = begin; row < end; ++row) {
        const V* from = v.x + row * v.row;
        V* to = out + row * v.width * lanes;
        for (int64_t c = 0; c < v.width; ++c, ++from, to += lanes)
            if (v.runs == lanes) {  // a constant number, so that the loop is unrolled
                for (int run = 0; run < lanes; ++run) to[run] = from[run * v.run];
            } else {
                for (int64_t run = 0; run < v.runs; ++run) to[run] = from[run * v.run];
                for (int64_t run = v.runs; run < lanes; ++run) to[run] = V(0);
            }
    }
}

template <class V>
int64_t lanes() {
    return run_lanes<V>;
}

template int64_t lanes<float>();
template int64_t lanes<double>();
template void pack_rows(const RunsView<float>&, int64_t, int64_t, float*);
template void pack_rows(const RunsView<double>&, int64_t, int64_t, double*);
template void pack_lanes(const RunsView<float>&, int64_t, int64_t, float*);
template void pack_lanes(const RunsView<double>&, int64_t, int64_t, double*);

}  // namespace hoplite::HOPLITE_ARCH
