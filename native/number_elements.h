// The element numbers row_number * d + f that dropout hashes.
#pragma once
#include "hash.h"

namespace hoplite::HOPLITE_ARCH {

// Those of the nonzeros first..first+count-1, which lie in `row` of X or of X^T; see kernels.h.
template <class I>
inline void number_part(const Numbering<I>& s, int64_t row, int64_t first, int64_t count,
                        uint32_t* __restrict__ low, uint32_t* __restrict__ high) {
    const I* __restrict__ columns = s.indices + first;
    // e_k = start + step * (column or its number), mod 2^32 in 32-bit arithmetic
    const uint64_t start = s.transposed ? row : (s.numbers ? s.numbers[row] : row) * s.d;
    const uint64_t step = s.transposed ? s.d : 1;
    const int64_t* numbers = s.transposed ? s.numbers : nullptr;
    if (numbers)
        for (int64_t k = 0; k < count; ++k)
            low[k] = fold(uint32_t(start) + uint32_t(step) * uint32_t(numbers[columns[k]]));
    else
        for (int64_t k = 0; k < count; ++k)
            low[k] = fold(uint32_t(start) + uint32_t(step) * uint32_t(columns[k]));
    if (!high) return;
    for (int64_t k = 0; k < count; ++k) {
        const uint64_t number = numbers ? numbers[columns[k]] : columns[k];
        high[k] = fold(uint32_t((start + step * number) >> 32) * high_word_factor);
    }
}

}  // namespace hoplite::HOPLITE_ARCH
