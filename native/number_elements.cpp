// The element numbers that dropout hashes, for a block of rows of X or of X^T.
#include "number_elements.h"

namespace hoplite::HOPLITE_ARCH {

template <class I>
void number_elements(const Numbering<I>& numbering, int64_t begin, int64_t end, uint32_t* low,
                     uint32_t* high) {
    const Numbering<I> s = numbering;  // a copy: the stores cannot change it
    const int64_t base = s.indptr[begin];
    for (int64_t row = begin; row < end; ++row) {
        const int64_t first = s.indptr[row], count = s.indptr[row + 1] - first;
        number_part(s, row, first, count, low + (first - base),
                    high ? high + (first - base) : nullptr);
    }
}

template void number_elements(const Numbering<int32_t>&, int64_t, int64_t, uint32_t*, uint32_t*);
template void number_elements(const Numbering<int64_t>&, int64_t, int64_t, uint32_t*, uint32_t*);

}  // namespace hoplite::HOPLITE_ARCH
