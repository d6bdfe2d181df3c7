// The counter-based hash behind input dropout; hoplite/engine/dropout.py has its twin in NumPy.
#pragma once
#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

constexpr uint32_t high_word_factor = 0x9E3779B9u;

// The hash is mix(mix(low ^ key0) ^ key1 ^ high) with lowbias32 as mix, a bijection of 32-bit words
// with little bias: mix(x) = fold(stir(fold(x))). Folding is linear and its own inverse, so between
// the two mixes it cancels out, and words can be folded beforehand. T is a word or a vector.
template <class T>
inline T fold(T x) {
    return x ^ x >> 16;
}

template <class T>
inline T stir(T x) {
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x;
}

// All of them folded: `low` is element mod 2^32, `high` is (element div 2^32) * high_word_factor.
template <class T>
inline T hash(T low, T high, T key0, T key1) {
    return fold(stir(stir(low ^ key0) ^ key1 ^ high));
}

inline bool keep(const KeepRule& rule, uint32_t low, uint32_t high) {
    return hash(low, high, fold(rule.key0), fold(rule.key1)) >= rule.threshold;
}

}  // namespace hoplite::HOPLITE_ARCH
