// A CSR matrix by its arrays, and how its rows are cut into pieces of equal work.
#pragma once
#include <algorithm>
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

// P S P^T of a square S, where P orders the rows by their number of nonzeros; those of a row keep
// their order, and with it every bit of its sums.
template <class V, class I>
class RowsByLength {
  public:
    explicit RowsByLength(const CsrView<V, I>& s)
        : order(s.rows), place(s.rows), indptr_(s.rows + 1), indices_(s.nnz), values_(s.nnz) {
        const auto length = [&](int64_t row) { return s.indptr[row + 1] - s.indptr[row]; };
        for (int64_t row = 0; row < s.rows; ++row) order[row] = row;
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return length(a) < length(b); });
        for (int64_t at = 0; at < s.rows; ++at) place[order[at]] = at;
        for (int64_t at = 0; at < s.rows; ++at) {
            const int64_t first = s.indptr[order[at]], to = indptr_[at];
            indptr_[at + 1] = to + length(order[at]);
            for (int64_t k = 0; k < length(order[at]); ++k) {
                indices_[to + k] = I(place[s.indices[first + k]]);
                values_[to + k] = s.values[first + k];
            }
        }
    }

    CsrView<V, I> view() const {
        const int64_t n = int64_t(order.size());
        return {n, n, indptr_[n], indptr_.data(), indices_.data(), values_.data()};
    }

    std::vector<int64_t> order, place;  // the row at a place, and the place of a row

  private:
    std::vector<int64_t> indptr_;
    std::vector<I> indices_;
    std::vector<V> values_;
};

}  // namespace hoplite
