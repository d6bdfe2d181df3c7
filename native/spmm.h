#pragma once
#include "csr.h"

namespace hoplite {

// Y = scale * (S X) + Z * diag(a) + b * W + c * U; all matrices row-major and contiguous.
// S: n x m, X: m x width, Y, Z, W, U: n x width, a: width. Z (with a), W and U may be null.
// Y may be W or Z, never X or U; U may be X.
template <class V>
struct SpmmArguments {
    const V* x;
    V* y;
    int64_t width;
    V scale;
    const V* z;
    const V* a;
    const V* w;
    V b;
    const V* u;
    V c;
};

template <class V, class I>
void spmm(const CsrView<V, I>& s, const SpmmArguments<V>& arguments, int threads);

}  // namespace hoplite
