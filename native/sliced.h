// A square matrix P S P^T, stored for many products in a row with few columns.
//
// P brings neighbours close together, and then sorts windows of rows by their length, so that four
// at a time can be summed side by side. Threads that share the rows by windows then read few rows
// of one another (on Pubmed this gained 10 % with one thread and 20 % with two). The nonzeros of a
// row keep their order, and with it every bit of its sums.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "csr.h"
#include "kernels.h"

namespace hoplite {

template <class V>
class Sliced {
  public:
    template <class I>
    explicit Sliced(const CsrView<V, I>& s) : n(s.rows) {
        if (s.columns != n) throw std::invalid_argument("the matrix must be square");
        if (n >= std::numeric_limits<int32_t>::max() - slice_rows)
            throw std::invalid_argument("the matrix has too many rows");
        places = (n + slice_rows - 1) / slice_rows * slice_rows;
        sort_rows(s);
        for (int64_t first = 0; first < places; first += slice_rows) add_slice(s, first);
        cut_parts();
    }

    int64_t parts() const { return int64_t(cuts.size()) - 1; }
    int64_t zero_row() const { return places; }  // tiles have one row more, of zeros

    int64_t n, places;           // n, and n rounded up to whole slices
    std::vector<int64_t> order;  // the row at a place, -1 behind the last one
    std::vector<int64_t> place;  // of a row
    std::vector<Slice> slices;
    std::vector<int32_t> indices;
    std::vector<V> values;
    std::vector<int64_t> cuts;   // parts of about equal work, in slices; the same for any threads

  private:
    static constexpr int64_t windows = 8;
    static constexpr int64_t part_work = 2048, max_parts = 256;

    template <class I>
    void sort_rows(const CsrView<V, I>& s) {
        const auto length = [&](int64_t row) { return s.indptr[row + 1] - s.indptr[row]; };
        const auto shorter = [&](int64_t a, int64_t b) { return length(a) < length(b); };
        order.resize(n);
        for (int64_t row = 0; row < n; ++row) {
            if (length(row) > std::numeric_limits<int32_t>::max())
                throw std::invalid_argument("a row of the matrix is too long");
            order[row] = row;
        }
        std::stable_sort(order.begin(), order.end(), shorter);
        order = breadth_first(s, order);
        const int64_t window = (n / windows / slice_rows + 1) * slice_rows;
        for (int64_t first = 0; first < n; first += window)
            std::stable_sort(order.begin() + first, order.begin() + std::min(first + window, n),
                             shorter);
        place.resize(n);
        for (int64_t at = 0; at < n; ++at) place[order[at]] = at;
        order.resize(places, -1);
    }

    // The order of Cuthill and McKee: neighbours of a row follow it, the short ones first. `starts`
    // has all rows, and the first ones of it that no other leads to begin.
    template <class I>
    std::vector<int64_t> breadth_first(const CsrView<V, I>& s, const std::vector<int64_t>& starts) {
        std::vector<int64_t> rank(n), found;
        std::vector<bool> seen(n, false);
        for (int64_t i = 0; i < n; ++i) rank[starts[i]] = i;
        found.reserve(places);
        const auto add = [&](int64_t row) {
            if (!seen[row]) found.push_back(row);
            seen[row] = true;
        };
        for (const int64_t start : starts) {
            std::size_t next = found.size();
            for (add(start); next < found.size(); ++next) {
                const int64_t row = found[next], first = int64_t(found.size());
                for (int64_t k = s.indptr[row]; k < s.indptr[row + 1]; ++k) add(s.indices[k]);
                std::sort(found.begin() + first, found.end(),
                          [&](int64_t a, int64_t b) { return rank[a] < rank[b]; });
            }
        }
        return found;
    }

    template <class I>
    void add_slice(const CsrView<V, I>& s, int64_t first_place) {
        int64_t begin[slice_rows] = {}, length[slice_rows] = {}, total = 0;
        for (int r = 0; r < slice_rows; ++r) {
            const int64_t row = order[first_place + r];
            if (row < 0) continue;
            begin[r] = s.indptr[row], length[r] = s.indptr[row + 1] - begin[r];
            total += length[r];
        }
        // As long as the longest row, unless that takes many zeros.
        int64_t common = 0;
        for (const int64_t longest : length) {
            int64_t filled = 0;
            for (const int64_t other : length) filled += std::max<int64_t>(longest - other, 0);
            if (longest > common && filled <= 8 + total / 8) common = longest;
        }
        Slice slice{int64_t(indices.size()), int32_t(common), {}};
        const auto add = [&](int r, int64_t i) {
            const bool has = i < length[r];
            indices.push_back(has ? int32_t(place[s.indices[begin[r] + i]]) : int32_t(zero_row()));
            values.push_back(has ? s.values[begin[r] + i] : V(0));
        };
        for (int64_t i = 0; i < common; ++i)
            for (int r = 0; r < slice_rows; ++r) add(r, i);
        for (int r = 0; r < slice_rows; ++r) {
            for (int64_t i = common; i < length[r]; ++i) add(r, i);
            slice.rest[r] = int32_t(std::max<int64_t>(length[r] - common, 0));
        }
        slices.push_back(slice);
    }

    void cut_parts() {
        const int64_t count = int64_t(slices.size());
        const auto work = [&](int64_t slice) {
            const int64_t entries = slice < count ? slices[slice].first : int64_t(indices.size());
            return entries + slice * slice_rows;
        };
        const int64_t wanted = std::min(max_parts, work(count) / part_work + 1);
        cuts.push_back(0);
        for (int64_t slice = 1; slice < count; ++slice)
            if (work(slice) * wanted >= work(count) * int64_t(cuts.size())) cuts.push_back(slice);
        cuts.push_back(count);
    }
};

}  // namespace hoplite
