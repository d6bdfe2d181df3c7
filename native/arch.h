// One source, several instruction sets: vectors and their fused multiply-add.
//
// The innermost loops (files that include this header) are compiled once per instruction set, each
// time with another HOPLITE_ARCH, and dispatch.cpp picks one at run time. Everything they define
// lives in namespace hoplite::HOPLITE_ARCH, and they call no std:: functions: one compiled here
// for AVX-512 could be the copy that the linker keeps for everybody.
//
// Vectors are the compilers' own (vector_size). GCC unrolls short loops over an array of
// accumulators before it tries to vectorise them, and then computes lane by lane.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef HOPLITE_ARCH
#define HOPLITE_ARCH baseline
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
#define HOPLITE_ELEMENTWISE_FMA
#endif
#endif

namespace hoplite::HOPLITE_ARCH {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

template <class V, int Lanes>
struct VectorOf {
    typedef V type __attribute__((vector_size(Lanes * sizeof(V))));
};
template <class V>
struct VectorOf<V, 1> {
    typedef V type;
};
template <class V, int Lanes>
using Vector = typename VectorOf<V, Lanes>::type;

// a * b + c with one rounding where that is fast, else with two, but the same way for vectors and
// for scalars, so that a column's bits do not depend on the vector it is computed in. The build
// sets -ffp-contract=off to keep the compiler from choosing.
#if defined(HOPLITE_ELEMENTWISE_FMA) && (defined(__FMA__) || defined(__aarch64__))
template <class T>
inline T fmadd(T a, T b, T c) {
    return __builtin_elementwise_fma(a, b, c);
}
#elif defined(__FMA__)
inline float fmadd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fmadd(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline __m128 fmadd(__m128 a, __m128 b, __m128 c) { return _mm_fmadd_ps(a, b, c); }
inline __m128d fmadd(__m128d a, __m128d b, __m128d c) { return _mm_fmadd_pd(a, b, c); }
inline __m256 fmadd(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256d fmadd(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#ifdef __AVX512F__
inline __m512 fmadd(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
inline __m512d fmadd(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#endif
#else
template <class T>
inline T fmadd(T a, T b, T c) {
    return a * b + c;
}
#endif

// The first Count elements at `from` as a vector whose other lanes do not matter; and back. A part
// of a vector goes lane by lane: through memory it stalls (written in pieces, read back as a
// whole), and so do masked accesses to neighbouring rows.
template <int Count, class V, class T>
inline T load_part(const V* from, T vector) {
    for (int j = 0; j < Count; ++j) vector[j] = from[j];
    return vector;
}
template <int Count, class V, class T>
inline void store_part(V* to, T vector) {
    for (int j = 0; j < Count; ++j) to[j] = vector[j];
}

template <class T, int Count, class V>
inline T load(const V* from) {
    if constexpr (Count * sizeof(V) < sizeof(T)) {
        return load_part<Count>(from, T{});
    } else {
        T vector;
        __builtin_memcpy(&vector, from, sizeof(T));  // a plain load, aligned or not
        return vector;
    }
}

template <int Count, class T, class V>
inline void store(V* to, const T& vector) {
    if constexpr (Count * sizeof(V) < sizeof(T))
        store_part<Count>(to, vector);
    else
        __builtin_memcpy(to, &vector, sizeof(T));
}

}  // namespace hoplite::HOPLITE_ARCH
