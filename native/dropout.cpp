// Input dropout: which elements are kept, of consecutive ones and of blocks of a sparse matrix.
#include "hash.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int word_lanes = vector_bytes / 4;
using Words = Vector<uint32_t, word_lanes>;

// The elements of a block of rows.
template <class V>
struct Elements {
    int64_t count;
    const int32_t* columns;
    const V* values;
    uint32_t *low, *high;  // their numbers, see number_elements; high may be null
};

// low[k] is the k-th element's number mod 2^32, high[k] is (number div 2^32) * high_word_factor,
// both folded, for rows [begin, end). The numbers are start + step * (a column, or its number).
template <class V, class I>
inline void number_elements(const FeatureRows<V, I>& x, int64_t begin, int64_t end,
                            const Elements<V>& e) {
    const int64_t base = x.indptr[begin], count = e.count;
    const uint64_t d = uint64_t(x.d), step = x.transposed ? d : 1;
    const int64_t* row_numbers = x.transposed ? nullptr : x.numbers;
    const int64_t* column_numbers = x.transposed ? x.numbers : nullptr;
    for (int64_t row = begin; row < end; ++row) {
        const uint64_t number = row_numbers ? uint64_t(row_numbers[row]) : uint64_t(row);
        const uint64_t start = x.transposed ? number : number * d;
        const int64_t stop = x.indptr[row + 1] - base;
        int64_t k = x.indptr[row] - base;
        if (column_numbers || e.high) {
            for (; k < stop; ++k) {
                const int64_t column = e.columns[k];
                const int64_t other = column_numbers ? column_numbers[column] : column;
                const uint64_t element = start + step * uint64_t(other);
                e.low[k] = fold(uint32_t(element));
                if (e.high) e.high[k] = fold(uint32_t(element >> 32) * high_word_factor);
            }
            continue;
        }
        // The last vector may run over into the next row, which comes later.
        const Words starts = uint32_t(start) - Words{}, steps = uint32_t(step) - Words{};
        for (; k < stop && k + word_lanes <= count; k += word_lanes) {
            const Words column = load<Words, word_lanes>(e.columns + k);
            store<word_lanes>(e.low + k, fold(starts + (x.transposed ? steps * column : column)));
        }
        for (; k < stop; ++k)
            e.low[k] = fold(uint32_t(start) + uint32_t(step) * uint32_t(e.columns[k]));
    }
}

#ifdef __AVX512F__

inline void keep_values(__mmask16 valid, __mmask16 kept, float scale, const float* from,
                        float* to) {
    const __m512 values = _mm512_maskz_loadu_ps(valid, from) * scale;
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(kept, values));
}
inline void keep_values(__mmask16 valid, __mmask16 kept, double scale, const double* from,
                        double* to) {
    const __m512d front = _mm512_maskz_loadu_pd(__mmask8(valid), from) * scale;
    const __m512d back = _mm512_maskz_loadu_pd(__mmask8(valid >> 8), from + 8) * scale;
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(__mmask8(kept), front));
    _mm512_storeu_pd(to + __builtin_popcount(kept & 0xff),
                     _mm512_maskz_compress_pd(__mmask8(kept >> 8), back));
}

// Sixteen elements at a time. `low` becomes, for each sixteen, how many were kept before them, and
// which of them are.
template <class V>
inline void compress(const KeepRule& rule, V scale, const Elements<V>& e, const Kept<V>& kept) {
    const Words key0 = fold(rule.key0) - Words{}, key1 = fold(rule.key1) - Words{};
    const __m512i threshold = _mm512_set1_epi32(int32_t(rule.threshold));
    uint32_t at = 0;
    for (int64_t k = 0; k < e.count; k += 16) {
        const __mmask16 valid = e.count - k < 16 ? __mmask16((1u << (e.count - k)) - 1) : 0xffff;
        const Words high = e.high ? load<Words, 16>(e.high + k) : Words{};
        const Words hashed = hash(load<Words, 16>(e.low + k), high, key0, key1);
        const __mmask16 mask = _mm512_mask_cmpge_epu32_mask(valid, (__m512i)hashed, threshold);
        const __m512i columns = _mm512_maskz_loadu_epi32(valid, e.columns + k);
        _mm512_storeu_si512(kept.columns + at, _mm512_maskz_compress_epi32(mask, columns));
        keep_values(valid, mask, scale, e.values + k, kept.values + at);
        e.low[k] = at, e.low[k + 1] = mask;
        at += uint32_t(__builtin_popcount(mask));
    }
    const int64_t end = (e.count + 15) / 16 * 16;
    e.low[end] = at, e.low[end + 1] = 0;
}

inline uint32_t kept_before(const uint32_t* low, int64_t k) {
    const uint32_t* group = low + k / 16 * 16;
    return group[0] + uint32_t(__builtin_popcount(group[1] & ((1u << (k % 16)) - 1)));
}

#else

// `low` becomes how many were kept before each element.
template <class V>
inline void compress(const KeepRule& rule, V scale, const Elements<V>& e, const Kept<V>& kept) {
    const KeepRule r = rule;
    uint32_t* const __restrict__ low = e.low;
    const uint32_t* const __restrict__ high = e.high;
    if (high)
        for (int64_t k = 0; k < e.count; ++k) low[k] = keep(r, low[k], high[k]) ? 1 : 0;
    else
        for (int64_t k = 0; k < e.count; ++k) low[k] = keep(r, low[k], 0u) ? 1 : 0;
    int32_t* const __restrict__ columns = kept.columns;
    V* const __restrict__ values = kept.values;
    uint32_t at = 0;
    for (int64_t k = 0; k < e.count; ++k) {
        columns[at] = e.columns[k];
        values[at] = e.values[k] * scale;
        const uint32_t next = at + low[k];
        low[k] = at;
        at = next;
    }
    low[e.count] = at;
}

inline uint32_t kept_before(const uint32_t* low, int64_t k) { return low[k]; }

#endif

template <class V, class I>
void keep_elements(const FeatureRows<V, I>& rows, int64_t begin, int64_t end, bool need_high,
                   uint32_t* room, int64_t room_size, const Kept<V>& kept) {
    const FeatureRows<V, I> x = rows;  // a copy: the stores cannot change it
    const int64_t base = x.indptr[begin], count = x.indptr[end] - base;
    int32_t* const columns = x.rule.threshold ? (int32_t*)(room + 2 * room_size) : kept.columns;
    for (int64_t k = 0; k < count; ++k) columns[k] = int32_t(x.indices[base + k]);
    if (x.rule.threshold == 0) {
        for (int64_t k = 0; k < count; ++k) kept.values[k] = x.values[base + k] * x.scale;
        for (int64_t row = begin; row <= end; ++row)
            kept.starts[row - begin] = x.indptr[row] - base;
        return;
    }
    const Elements<V> e{count, columns, x.values + base, room,
                        need_high ? room + room_size : nullptr};
    number_elements(x, begin, end, e);
    compress(x.rule, x.scale, e, kept);
    for (int64_t row = begin; row <= end; ++row)
        kept.starts[row - begin] = kept_before(e.low, x.indptr[row] - base);
}

template <class V>
void drop_range(const KeepRule& rule, V scale, const V* __restrict__ values, uint64_t first,
                int64_t count, V* __restrict__ out) {
    const KeepRule r = rule;
    while (count > 0) {
        // A stretch in which the high word is constant, so that the loop is 32 bits wide.
        const uint32_t low = uint32_t(first);
        const uint32_t high = fold(uint32_t(first >> 32) * high_word_factor);
        const int64_t until_carry = (int64_t(1) << 32) - low;
        const int64_t stretch = count < until_carry ? count : until_carry;
        for (int64_t k = 0; k < stretch; ++k)
            out[k] = keep(r, fold(low + uint32_t(k)), high) ? scale * values[k] : V(0);
        first += uint64_t(stretch), values += stretch, out += stretch, count -= stretch;
    }
}

#define HOPLITE_INSTANTIATE(V)                                                                   \
    template void keep_elements(const FeatureRows<V, int32_t>&, int64_t, int64_t, bool,         \
                                uint32_t*, int64_t, const Kept<V>&);                             \
    template void keep_elements(const FeatureRows<V, int64_t>&, int64_t, int64_t, bool,         \
                                uint32_t*, int64_t, const Kept<V>&);                             \
    template void drop_range(const KeepRule&, V, const V*, uint64_t, int64_t, V*);
HOPLITE_INSTANTIATE(float)
HOPLITE_INSTANTIATE(double)

}  // namespace hoplite::HOPLITE_ARCH
