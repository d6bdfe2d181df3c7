// One hop of a polynomial on packed tiles: Y = scale * (S X) + a Z + b W + c X.
//
// Four rows are summed side by side, so that their chains of fmadd do not wait for one another.
// Each output element is one chain over the nonzeros of its row in stored order, whatever the tile.
#include <utility>

#include "arch.h"
#include "kernels.h"

namespace hoplite::HOPLITE_ARCH {

// What is added to the sums: those of monomials have loops of their own, since a test for each row
// costs as much as an element of it.
enum Form { sums, sums_and_z, any_form };

template <class V>
Form form_of(const HopTile<V>& t) {
    if (t.scale != V(1) || t.w || t.c != V(0)) return any_form;
    return t.z ? sums_and_z : sums;
}

// Vectors [first, first + sizeof...(Each)) of the tile's rows.
template <class V, Form Terms, int Stride, int Lanes, int... Each>
void hop_vectors(const HopTile<V>& tile, int64_t begin, int64_t end, int first,
                 std::integer_sequence<int, Each...>) {
    constexpr int vectors = sizeof...(Each);
    using T = Vector<V, Lanes>;
    const HopTile<V> t = tile;  // a copy: the stores to y cannot change it
    const V* const x = t.x + first * Lanes;
    T a[vectors] = {};
    if (t.z) ((a[Each] = load<T, Lanes>(t.a + (first + Each) * Lanes)), ...);
    for (int64_t slice = begin; slice < end; ++slice) {
        const Slice& s = t.slices[slice];
        T sum[slice_rows][vectors] = {};
        const auto add = [&](int64_t k, T* total) {
            const V* from = x + int64_t(t.indices[k]) * Stride;
            const T value = t.values[k] - T{};  // the same in all lanes
            ((total[Each] = fmadd(value, load<T, Lanes>(from + Each * Lanes), total[Each])), ...);
        };
        int64_t k = s.first;
        for (const int64_t stop = k + int64_t(s.common) * slice_rows; k < stop; k += slice_rows)
            add(k, sum[0]), add(k + 1, sum[1]), add(k + 2, sum[2]), add(k + 3, sum[3]);
        const auto rest = [&](int32_t count, T* total) {
            for (; count > 0; --count, ++k) add(k, total);
        };
        rest(s.rest[0], sum[0]), rest(s.rest[1], sum[1]);
        rest(s.rest[2], sum[2]), rest(s.rest[3], sum[3]);
        const int64_t at = slice * slice_rows * Stride + first * Lanes;
        const auto finish = [&](int64_t row, T* total) {
            const int64_t from = at + row * Stride;
            if constexpr (Terms == any_form)
                ((total[Each] = total[Each] * (t.scale - T{})), ...);
            if (Terms == sums_and_z || (Terms == any_form && t.z))
                ((total[Each] = fmadd(a[Each], load<T, Lanes>(t.z + from + Each * Lanes),
                                      total[Each])), ...);
            if (Terms == any_form && t.w)
                ((total[Each] = fmadd(t.b - T{}, load<T, Lanes>(t.w + from + Each * Lanes),
                                      total[Each])), ...);
            if (Terms == any_form && t.c != V(0))
                ((total[Each] = fmadd(t.c - T{}, load<T, Lanes>(t.x + from + Each * Lanes),
                                      total[Each])), ...);
            (store<Lanes>(t.y + from + Each * Lanes, total[Each]), ...);
        };
        finish(0, sum[0]), finish(1, sum[1]), finish(2, sum[2]), finish(3, sum[3]);
    }
}

template <class V, Form Terms, int Stride>
void hop_stride(const HopTile<V>& tile, int64_t begin, int64_t end) {
    constexpr int full = vector_bytes / int(sizeof(V)), lanes = Stride < full ? Stride : full;
    constexpr int vectors = Stride / lanes;
    constexpr int together = vectors < 2 ? vectors : 2;  // four rows of each fit in 16 registers
    for (int first = 0; first < vectors; first += together)
        hop_vectors<V, Terms, Stride, lanes>(tile, begin, end, first,
                                      std::make_integer_sequence<int, together>());
}

template <class V, Form Terms>
void hop_terms(const HopTile<V>& tile, int64_t begin, int64_t end) {
    constexpr int vector = 16 / int(sizeof(V));  // strides are 1, 2 or 4 of these
    if (tile.stride == vector)
        hop_stride<V, Terms, vector>(tile, begin, end);
    else if (tile.stride == 2 * vector)
        hop_stride<V, Terms, 2 * vector>(tile, begin, end);
    else
        hop_stride<V, Terms, 4 * vector>(tile, begin, end);
}

template <class V>
void hop_slices(const HopTile<V>& tile, int64_t begin, int64_t end) {
    const Form form = form_of(tile);
    if (form == sums)
        hop_terms<V, sums>(tile, begin, end);
    else if (form == sums_and_z)
        hop_terms<V, sums_and_z>(tile, begin, end);
    else
        hop_terms<V, any_form>(tile, begin, end);
}

template void hop_slices(const HopTile<float>&, int64_t, int64_t);
template void hop_slices(const HopTile<double>&, int64_t, int64_t);

}  // namespace hoplite::HOPLITE_ARCH
