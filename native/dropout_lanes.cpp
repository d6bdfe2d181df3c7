// Rows of drop(X) Theta, or of its transpose, for as many runs as a vector has lanes.
//
// One vector of hashes says which runs keep a nonzero, and serves all of their classes. A chunk of
// nonzeros is weighed first (its operands arrive meanwhile) and multiplied then, a block of classes
// at a time, with the accumulators in registers. Every output element is the chain or the four
// chains of fmadd that spmm_rows computes from the values of drop_values: the same bits.
#include <utility>

#include "layout.h"
#include "number_elements.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int chunk = 64;  // nonzeros: their weights stay in the L1 cache
constexpr int cache_line = 64;

#define HOPLITE_INLINE __attribute__((always_inline))

// The classes whose accumulators fit into the 32 or 16 registers, and a few more for operands.
constexpr int most_classes(int chains) {
    return chains == 1 ? 8 : vector_bytes == 64 ? 7 : 3;
}

template <class T, class Mask>
inline T select(Mask mask, T yes) {
    if constexpr (sizeof(Mask) == sizeof(T))
        return mask ? yes : T{};
    else
        return __builtin_convertvector(mask, Vector<int64_t, sizeof(T) / 8>) ? yes : T{};
}

// weights[k, r] = keep_r(e_k) ? scale_r * value_k : 0 for a chunk within a row.
template <class V, class I>
inline void weigh(const LanesTile<V, I>& t, int64_t row, int64_t first, int64_t count,
                  V* __restrict__ weights) {
    constexpr int lanes = run_lanes<V>;
    using T = Vector<V, lanes>;
    using Words = Vector<uint32_t, lanes>;
    uint32_t low[chunk], high[chunk];
    number_part(t.numbering, row, first, count, low, t.need_high ? high : nullptr);
    if (t.prefetch)
        for (int64_t k = first; k < first + count; ++k) {
            const V* x = t.x + t.numbering.indices[k] * t.x_stride;
            for (int64_t j = 0; j < t.width * lanes; j += cache_line / int(sizeof(V)))
                __builtin_prefetch(x + j);
        }
    const Words key0 = fold(load<Words, lanes>(t.key0)), key1 = fold(load<Words, lanes>(t.key1));
    const Words threshold = load<Words, lanes>(t.threshold);
    const T scale = load<T, lanes>(t.scale);
    const auto put = [&](int64_t k, Words hashed) {
        const T value = scale * (t.values[first + k] - T{});
        store<lanes>(weights + k * lanes, select(hashed >= threshold, value));
    };
    if (t.need_high)
        for (int64_t k = 0; k < count; ++k)
            put(k, hash(low[k] + Words{}, high[k] + Words{}, key0, key1));
    else
        for (int64_t k = 0; k < count; ++k) put(k, hash(low[k] + Words{}, Words{}, key0, key1));
}

struct Chunk {
    int64_t row, first, count;
    bool starts, ends;  // the row
};

// A chunk's part in a block of classes. Between the chunks of a row its sums so far are in `sums`,
// [Chains, classes, lanes]; after the last the total goes to y.
template <class V, class I, int Chains, int... Class>
inline void add_chunk(const LanesTile<V, I>& t, const Chunk& at, int64_t first_class,
                      const V* weights, V* sums, std::integer_sequence<int, Class...>) {
    constexpr int lanes = run_lanes<V>, classes = sizeof...(Class);
    using T = Vector<V, lanes>;
    const I* indices = t.numbering.indices + at.first;
    const V* origin = t.x + first_class * lanes;
    const int64_t stride = t.x_stride, count = at.count;
    T sum[Chains][classes] = {};
    // Inlined by force, and chains by constant number: else the sums would not be registers.
    const auto each_chain = [&](auto&& f) HOPLITE_INLINE {
        f(0);
        if constexpr (Chains == 4) f(1), f(2), f(3);
    };
    const auto step = [&](int64_t k, int j) HOPLITE_INLINE {
        const V* x = origin + indices[k] * stride;
        const T weight = load<T, lanes>(weights + k * lanes);
        ((sum[j][Class] = fmadd(weight, load<T, lanes>(x + Class * lanes), sum[j][Class])), ...);
    };
    if (!at.starts)
        each_chain([&](int j) HOPLITE_INLINE {
            ((sum[j][Class] = load<T, lanes>(sums + (j * classes + Class) * lanes)), ...);
        });
    int64_t k = 0;
    for (; k + Chains <= count; k += Chains)
        each_chain([&](int j) HOPLITE_INLINE { step(k + j, j); });
    if constexpr (Chains == 4) {
        if (k < count) step(k, 0);
        if (k + 1 < count) step(k + 1, 1);
        if (k + 2 < count) step(k + 2, 2);
    }
    if (!at.ends) {
        each_chain([&](int j) HOPLITE_INLINE {
            (store<lanes>(sums + (j * classes + Class) * lanes, sum[j][Class]), ...);
        });
        return;
    }
    alignas(cache_line) V total[classes * lanes];
    if constexpr (Chains == 4)
        (store<lanes>(total + Class * lanes,
                      (sum[0][Class] + sum[1][Class]) + (sum[2][Class] + sum[3][Class])), ...);
    else
        (store<lanes>(total + Class * lanes, sum[0][Class]), ...);
    V* y = t.y + at.row * t.y_row + first_class;
    for (int64_t run = 0; run < t.runs; ++run, y += t.y_run)
        ((y[Class] = total[Class * lanes + run]), ...);
}

template <class V, class I, int Chains, int Classes>
void add_classes(const LanesTile<V, I>& t, const Chunk& at, int64_t first_class,
                 const V* weights, V* sums) {
    add_chunk<V, I, Chains>(t, at, first_class, weights, sums,
                            std::make_integer_sequence<int, Classes>());
}

template <class V, class I, int Chains, int... Less>
void rows_in_lanes(const LanesTile<V, I>& tile, int64_t begin, int64_t end,
                   std::integer_sequence<int, Less...>) {
    constexpr int lanes = run_lanes<V>;
    using Function = void (*)(const LanesTile<V, I>&, const Chunk&, int64_t, const V*, V*);
    static constexpr Function of_classes[] = {add_classes<V, I, Chains, Less + 1>...};
    const LanesTile<V, I> t = tile;  // a copy: the stores to y cannot change it
    const int64_t blocks = (t.width + most_classes(Chains) - 1) / most_classes(Chains);
    const int64_t block = (t.width + blocks - 1) / blocks;  // classes, about the same in all
    alignas(cache_line) V weights[chunk * lanes];
    alignas(cache_line) V sums[max_tile_bytes / sizeof(V) * lanes];  // Chains * width * lanes
    for (int64_t row = begin; row < end; ++row) {
        const int64_t start = t.numbering.indptr[row], stop = t.numbering.indptr[row + 1];
        for (int64_t first = start; first < stop || first == start; first += chunk) {
            const int64_t count = stop - first < chunk ? stop - first : chunk;
            const Chunk at{row, first, count, first == start, first + count == stop};
            weigh(t, row, first, count, weights);
            for (int64_t c = 0; c < t.width; c += block) {
                const int64_t classes = t.width - c < block ? t.width - c : block;
                of_classes[classes - 1](t, at, c, weights, sums + c * Chains * lanes);
            }
        }
    }
}

template <class V, class I, int Chains>
void rows_in_chains(const LanesTile<V, I>& tile, int64_t begin, int64_t end) {
    rows_in_lanes<V, I, Chains>(tile, begin, end,
                                std::make_integer_sequence<int, most_classes(Chains)>());
}

template <class V, class I>
void dropout_lanes(const LanesTile<V, I>& tile, int64_t begin, int64_t end) {
    if (Layout<V>(int(tile.width)).chains() == 4)
        rows_in_chains<V, I, 4>(tile, begin, end);
    else
        rows_in_chains<V, I, 1>(tile, begin, end);
}

template void dropout_lanes(const LanesTile<float, int32_t>&, int64_t, int64_t);
template void dropout_lanes(const LanesTile<float, int64_t>&, int64_t, int64_t);
template void dropout_lanes(const LanesTile<double, int32_t>&, int64_t, int64_t);
template void dropout_lanes(const LanesTile<double, int64_t>&, int64_t, int64_t);

}  // namespace hoplite::HOPLITE_ARCH
