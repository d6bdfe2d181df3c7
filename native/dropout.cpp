// Input dropout: which elements are kept, of consecutive ones and of rows of a sparse matrix.
#include <type_traits>

#include "hash.h"

namespace hoplite::HOPLITE_ARCH {

template <class V, class I>
inline V kept_value(const FeatureRows<V, I>& x, uint64_t element, V value) {
    const uint32_t high = fold(uint32_t(element >> 32) * high_word_factor);
    return keep(x.rule, fold(uint32_t(element)), high) ? value * x.scale : V(0);
}

template <class Words, int Lanes, class I>
inline Words load_columns(const I* from) {
    if constexpr (sizeof(I) == sizeof(uint32_t)) return load<Words, Lanes>(from);
    Words columns;
    for (int j = 0; j < Lanes; ++j) columns[j] = uint32_t(from[j]);
    return columns;
}

template <class V, class I>
void drop_elements(const FeatureRows<V, I>& rows, int64_t begin, int64_t end, V* out) {
    constexpr int lanes = vector_bytes / int(sizeof(V));
    static_assert(lanes <= drop_slack);
    using Words = Vector<uint32_t, lanes>;
    using Values = Vector<V, lanes>;
    using Chosen = Vector<std::conditional_t<sizeof(V) == 4, int32_t, int64_t>, lanes>;
    const FeatureRows<V, I> x = rows;  // a copy: the stores cannot change it
    const Words key0 = fold(x.rule.key0) - Words{}, key1 = fold(x.rule.key1) - Words{};
    const Words threshold = x.rule.threshold - Words{};
    const Values scale = x.scale - Values{};
    out -= x.indptr[begin];
    for (int64_t row = begin; row < end; ++row) {
        const uint64_t start = uint64_t(x.numbers ? x.numbers[row] : row) * uint64_t(x.d);
        const uint64_t high_word = start >> 32;
        const Words first = uint32_t(start) - Words{};
        const Words high = fold(uint32_t(high_word) * high_word_factor) - Words{};
        const int64_t stop = x.indptr[row + 1];
        int64_t k = x.indptr[row];
        // The last vector may run over into the next row, which comes later.
        if (start + uint64_t(x.d) >> 32 == high_word)
            for (; k < stop && k + lanes <= x.nnz; k += lanes) {
                const Words low = fold(first + load_columns<Words, lanes>(x.indices + k));
                const auto kept = hash(low, high, key0, key1) >= threshold;
                const Values values = load<Values, lanes>(x.values + k) * scale;
                store<lanes>(out + k, __builtin_convertvector(kept, Chosen) ? values : Values{});
            }
        for (; k < stop; ++k) out[k] = kept_value(x, start + uint64_t(x.indices[k]), x.values[k]);
    }
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
    template void drop_elements(const FeatureRows<V, int32_t>&, int64_t, int64_t, V*);         \
    template void drop_elements(const FeatureRows<V, int64_t>&, int64_t, int64_t, V*);            \
    template void drop_range(const KeepRule&, V, const V*, uint64_t, int64_t, V*);
HOPLITE_INSTANTIATE(float)
HOPLITE_INSTANTIATE(double)

}  // namespace hoplite::HOPLITE_ARCH
