// The element numbers row_number * d + f that dropout hashes, for a block of rows of X or of X^T.
#include "hash.h"

namespace hoplite::HOPLITE_ARCH {

template <class I>
void number_elements(const Numbering<I>& numbering, int64_t begin, int64_t end,
                     uint32_t* __restrict__ low, uint32_t* __restrict__ high) {
    const Numbering<I> s = numbering;
    const int64_t base = s.indptr[begin];
    for (int64_t row = begin; row < end; ++row) {
        const int64_t first = s.indptr[row], count = s.indptr[row + 1] - first;
        const I* __restrict__ columns = s.indices + first;
        // e_k = start + step * (column or its number), mod 2^32 in 32-bit arithmetic
        const uint64_t start = s.transposed ? row : (s.numbers ? s.numbers[row] : row) * s.d;
        const uint64_t step = s.transposed ? s.d : 1;
        const int64_t* numbers = s.transposed ? s.numbers : nullptr;
        uint32_t* __restrict__ out = low + (first - base);
        if (numbers)
            for (int64_t k = 0; k < count; ++k)
                out[k] = uint32_t(start) + uint32_t(step) * uint32_t(numbers[columns[k]]);
        else
            for (int64_t k = 0; k < count; ++k)
                out[k] = uint32_t(start) + uint32_t(step) * uint32_t(columns[k]);
        if (!high) continue;
        for (int64_t k = 0; k < count; ++k) {
            const uint64_t number = numbers ? numbers[columns[k]] : columns[k];
            high[first - base + k] = uint32_t((start + step * number) >> 32) * high_word_factor;
        }
    }
}

template void number_elements(const Numbering<int32_t>&, int64_t, int64_t, uint32_t*, uint32_t*);
template void number_elements(const Numbering<int64_t>&, int64_t, int64_t, uint32_t*, uint32_t*);

}  // namespace hoplite::HOPLITE_ARCH
