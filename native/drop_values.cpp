// Input dropout of values: out = keep ? scale * value : 0, for listed or consecutive elements.
#include "hash.h"

namespace hoplite::HOPLITE_ARCH {

template <class V>
inline V dropped(const KeepRule& rule, V value, uint32_t low, uint32_t high) {
    return keep(rule, low, high) ? value : V(0);
}

template <class V>
void drop_values(const KeepRule& rule, V scale, const V* __restrict__ values,
                 const uint32_t* __restrict__ low, const uint32_t* __restrict__ high,
                 int64_t count, V* __restrict__ out) {
    const KeepRule r = rule;  // a copy: the stores below cannot change it
    if (high)
        for (int64_t k = 0; k < count; ++k) out[k] = dropped(r, scale * values[k], low[k], high[k]);
    else
        for (int64_t k = 0; k < count; ++k) out[k] = dropped(r, scale * values[k], low[k], 0u);
}

template <class V>
void drop_range(const KeepRule& rule, V scale, const V* __restrict__ values, uint64_t first,
                int64_t count, V* __restrict__ out) {
    const KeepRule r = rule;
    while (count > 0) {
        // A stretch in which the high word is constant, so that the loop is 32 bits wide.
        const uint32_t low = uint32_t(first);
        const uint32_t high = uint32_t(first >> 32) * high_word_factor;
        const int64_t until_carry = (int64_t(1) << 32) - low;
        const int64_t stretch = count < until_carry ? count : until_carry;
        for (int64_t k = 0; k < stretch; ++k)
            out[k] = dropped(r, scale * values[k], fold(low + uint32_t(k)), fold(high));
        first += stretch, values += stretch, out += stretch, count -= stretch;
    }
}

template void drop_values(const KeepRule&, float, const float*, const uint32_t*, const uint32_t*,
                          int64_t, float*);
template void drop_values(const KeepRule&, double, const double*, const uint32_t*, const uint32_t*,
                          int64_t, double*);
template void drop_range(const KeepRule&, float, const float*, uint64_t, int64_t, float*);
template void drop_range(const KeepRule&, double, const double*, uint64_t, int64_t, double*);

}  // namespace hoplite::HOPLITE_ARCH
