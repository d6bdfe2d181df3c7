// The last look at a sparse matrix before the kernels trust it. A matrix from files is looked at
// whenever a part of it is read, so the loops have no way out in between: they become vectors.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "csr.h"

namespace hoplite {

template <class V, class I>
void check_csr(const CsrView<V, I>& s) {
    if (s.columns < 0 || s.indptr[0] != 0 || s.indptr[s.rows] != s.nnz)
        throw std::invalid_argument("indptr, indices and values do not fit together");
    bool decreases = false, outside = false;
    for (int64_t row = 0; row < s.rows; ++row) decreases |= s.indptr[row] > s.indptr[row + 1];
    if (decreases) throw std::invalid_argument("indptr must never decrease");
    using Natural = std::make_unsigned_t<I>;  // in which a negative index is a large one
    const uint64_t most = uint64_t(std::numeric_limits<I>::max()) + 1;
    const Natural limit = Natural(std::min<uint64_t>(s.columns, most));
    for (int64_t k = 0; k < s.nnz; ++k) outside |= Natural(s.indices[k]) >= limit;
    if (outside) throw std::invalid_argument("a column index is out of range");
}

template void check_csr(const CsrView<float, int32_t>&);
template void check_csr(const CsrView<float, int64_t>&);
template void check_csr(const CsrView<double, int32_t>&);
template void check_csr(const CsrView<double, int64_t>&);

}  // namespace hoplite
