// How columns, or runs, lie in vectors; with it goes the order of a row's sums.
#pragma once
#include "arch.h"

namespace hoplite::HOPLITE_ARCH {

// `width` columns as `count` vectors of `lanes`. The lanes beyond the width read the following row
// of X (never further) and are thrown away.
template <class V>
struct Layout {
    int lanes, count;
    constexpr explicit Layout(int width) : lanes(1), count(1) {
        const int full = vector_bytes / int(sizeof(V)), least = 16 / int(sizeof(V));
        if (width == 1) return;
        lanes = least;
        while (lanes < width && lanes < full) lanes *= 2;
        if (lanes * sizeof(V) == 64 && width % lanes != 0) lanes /= 2;  // a shorter broken vector
        count = (width + lanes - 1) / lanes;
    }
    // A row of a single vector may be summed in this many chains, dealt out by position in the row
    // and added in pairs: one chain alone waits for its own last fmadd.
    constexpr int chains() const { return count == 1 ? 4 : 1; }
};

// Runs side by side in a vector.
template <class V>
constexpr int run_lanes = vector_bytes / int(sizeof(V));

}  // namespace hoplite::HOPLITE_ARCH
