// The kept elements of some rows times a packed dense matrix of up to a cache line a row.
//
// A row is summed in four chains, dealt out by position and added in pairs: one chain alone would
// wait for its own last fmadd. The order is the same for any width.
#include <utility>

#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

constexpr int chains = 4;

inline float masked(float value, bool valid) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    bits &= -uint32_t(valid);
    __builtin_memcpy(&value, &bits, sizeof(bits));
    return value;
}
inline double masked(double value, bool valid) {
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    bits &= -uint64_t(valid);
    __builtin_memcpy(&value, &bits, sizeof(bits));
    return value;
}

// Vectors [First, First + sizeof...(Each)) of rows of `Width` columns.
template <class V, int Width, int Stride, int Lanes, int First, int... Each>
void times_vectors(const TimesTile<V>& tile, std::integer_sequence<int, Each...>) {
    constexpr int vectors = sizeof...(Each);
    using T = Vector<V, Lanes>;
    const TimesTile<V> t = tile;  // a copy: the stores to y cannot change it
    const int32_t* const columns = t.columns;
    const V* const values = t.values;
    for (int64_t row = 0; row < t.rows; ++row) {
        T sum[chains][vectors] = {};
        const auto add = [&](int64_t column, V value, T* total) {
            const V* x = t.x + column * Stride + First * Lanes;
            const T factor = value - T{};  // the same in all lanes
            ((total[Each] = fmadd(factor, load<T, Lanes>(x + Each * Lanes), total[Each])), ...);
        };
        int64_t k = t.starts[row];
        const int64_t stop = t.starts[row + 1];
        for (; k + chains <= stop; k += chains) {
            add(columns[k], values[k], sum[0]), add(columns[k + 1], values[k + 1], sum[1]);
            add(columns[k + 2], values[k + 2], sum[2]), add(columns[k + 3], values[k + 3], sum[3]);
        }
        // Up to three are left. Always as many steps, since a branch would often be mispredicted.
        const auto add_valid = [&](int64_t at, T* total) {
            const bool valid = at < stop;
            add(valid ? columns[at] : t.zero_row, masked(values[at], valid), total);
        };
        add_valid(k, sum[0]), add_valid(k + 1, sum[1]), add_valid(k + 2, sum[2]);
        V* const y = t.y + row * t.y_stride + First * Lanes;
        ((sum[0][Each] = (sum[0][Each] + sum[1][Each]) + (sum[2][Each] + sum[3][Each])), ...);
        (store<(Width - (First + Each) * Lanes < Lanes ? Width - (First + Each) * Lanes : Lanes)>(
             y + Each * Lanes, sum[0][Each]), ...);
    }
}

template <class V, int Width>
void times_width(const TimesTile<V>& tile) {
    constexpr int full = vector_bytes / int(sizeof(V)), stride = int(packed_stride<V>(Width));
    constexpr int lanes = stride < full ? stride : full;
    constexpr int vectors = (Width + lanes - 1) / lanes, front = vectors < 2 ? vectors : 2;
    times_vectors<V, Width, stride, lanes, 0>(tile, std::make_integer_sequence<int, front>());
    if constexpr (vectors > 2)  // four chains of each fit in 16 registers
        times_vectors<V, Width, stride, lanes, 2>(tile,
                                                  std::make_integer_sequence<int, vectors - 2>());
}

template <class V, int... Less>
void choose_width(const TimesTile<V>& tile, std::integer_sequence<int, Less...>) {
    using Function = void (*)(const TimesTile<V>&);
    static constexpr Function of_width[] = {times_width<V, Less + 1>...};
    of_width[tile.width - 1](tile);
}

template <class V>
void times_rows(const TimesTile<V>& tile) {
    choose_width(tile, std::make_integer_sequence<int, max_packed_bytes / int(sizeof(V))>());
}

template void times_rows(const TimesTile<float>&);
template void times_rows(const TimesTile<double>&);

}  // namespace hoplite::HOPLITE_ARCH
