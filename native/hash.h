// The counter-based hash behind input dropout; dropout.py holds its twin in torch operations.
#pragma once
#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

constexpr uint32_t high_word_factor = 0x9E3779B9u;

// lowbias32: a bijection of 32-bit words with little bias (two multiplications, so it vectorises).
inline uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

// `low` is element mod 2^32; `high` is (element div 2^32) * high_word_factor.
inline bool keep(const KeepRule& rule, uint32_t low, uint32_t high) {
    return mix(mix(low ^ rule.key0) ^ rule.key1 ^ high) >= rule.threshold;
}

}  // namespace hoplite::HOPLITE_ARCH
