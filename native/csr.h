// A CSR matrix by its arrays, and how its rows are cut into pieces of equal work.
#pragma once
#include <cstdint>
#include <vector>

namespace hoplite {

template <class V, class I>
struct CsrView {
    int64_t rows, columns, nnz;
    const int64_t* indptr;  // rows + 1
    const I* indices;       // nnz, each in [0, columns)
    const V* values;        // nnz
};

// Row boundaries of `parts` pieces. Work counts nonzeros and, less, rows, so that neither a hub
// nor a long run of empty rows makes a piece heavy.
template <class V, class I>
std::vector<int64_t> balanced_cuts(const CsrView<V, I>& s, int64_t parts) {
    std::vector<int64_t> cuts(parts + 1, s.rows);
    cuts[0] = 0;
    const double work = double(s.nnz) + double(s.rows);
    for (int64_t part = 1; part < parts; ++part) {
        const double target = work * double(part) / double(parts);
        int64_t low = cuts[part - 1], high = s.rows;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (double(s.indptr[middle]) + double(middle) < target)
                low = middle + 1;
            else
                high = middle;
        }
        cuts[part] = low;
    }
    return cuts;
}

}  // namespace hoplite
