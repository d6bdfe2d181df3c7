// What the processor can do, and the system lets it: the instruction sets with kernels of their own.
#pragma once
#include <cstdint>

namespace hoplite {

struct CpuFeatures {
    bool avx2;    // with fused multiply-adds
    bool avx512;  // F, BW, DQ and VL
};

#if !defined(_MSC_VER) && !defined(HOPLITE_ASK_CPUID)

inline CpuFeatures cpu_features() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return {avx2, avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")};
}

#else  // clang-cl knows that built-in, but not the library behind it

struct CpuidWords {
    uint32_t a, b, c, d;
};

inline CpuidWords cpuid(uint32_t leaf) {
    CpuidWords words;
    __asm__ volatile("cpuid"
                     : "=a"(words.a), "=b"(words.b), "=c"(words.c), "=d"(words.d)
                     : "a"(leaf), "c"(0));
    return words;
}

inline bool all_of(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

inline CpuFeatures cpu_features() {
    constexpr uint32_t osxsave = 1u << 27, avx = 1u << 28, fma = 1u << 12;
    if (cpuid(0).a < 7 || !all_of(cpuid(1).c, osxsave | avx | fma)) return {false, false};
    uint32_t saved, high;  // the registers that the system keeps when it switches threads
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const uint32_t extended = cpuid(7).b;
    const bool avx2 = all_of(saved, 0x6) && all_of(extended, 1u << 5);
    const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    return {avx2, avx2 && all_of(saved, 0xe6) && all_of(extended, f_dq_bw_vl)};
}

#endif

}  // namespace hoplite
