// Features times a dense matrix, with input dropout.
//
// The sparse matrix is taken in blocks of rows. The elements of a block, 0 where they are dropped,
// go into a small buffer, and are multiplied from there while it is in cache. The dense matrix is
// taken in slabs of a cache line a row. The product with the transpose goes over the same rows, so
// that there is one matrix to read: each part of the rows adds to a slab of its own, and the slabs
// are added in order. The parts depend on the matrix alone.
#include "features.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "buffer.h"
#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t block_nonzeros = 4096;  // the buffer of a block fits in the L1 cache
constexpr int64_t part_nonzeros = int64_t(1) << 15, max_parts = 16;
constexpr int64_t max_sums = int64_t(1) << 22;  // numbers, of slabs that are summed together
constexpr int64_t packed_rows = 1024;           // per task

// One call of `times`: blocks of rows of the matrix, slabs of columns of the dense one.
template <class V, class I>
class Product {
  public:
    Product(const CsrView<V, I>& s, const TimesArguments<V>& args, int threads)
        : s_(s), args_(args), team_(threads, (s.nnz + s.rows) * (args.width + 8)),
          threads_(team_.threads), slabs_((args.width + widest - 1) / widest),
          slab_size_(s.columns * packed_stride<V>(std::min(args.width, widest))),
          cuts_(balanced_cuts(s, std::min(s.rows, s.nnz / block_nonzeros + 1))),
          blocks_(int64_t(cuts_.size()) - 1),
          drops_(args.rule.threshold != 0 || args.scale != V(1)) {
        for (int64_t block = 0; block < blocks_; ++block)
            largest_ = std::max(largest_, begin(block + 1) - begin(block) + drop_slack);
    }

    // out = X~ dense
    void times() {
        Room room(Room::bytes<V>(slabs_ * slab_size_) + dropped_bytes());
        packed_ = room.take<V>(slabs_ * slab_size_);
        dropped_ = room.take<V>(dropped_size());
        pack();
        drop_all();
        parallel_for(blocks_ * slabs_, threads_, [&](int64_t task, int worker) {
            const int64_t block = task % blocks_, column = task / blocks_ * widest;
            const int64_t to = cuts_[block] * args_.out_row + column;
            TimesTile<V> tile{};
            tile.x = packed_ + task / blocks_ * slab_size_;
            tile.y = args_.out + to, tile.y_stride = args_.out_row;
            tile.width = std::min(widest, args_.width - column);
            if (args_.whole)
                tile.other_values = s_.values + begin(block), tile.other_y = args_.whole + to;
            kernels<V, I>().times_rows(elements(block, worker), tile);
        });
    }

    // out = X~^T dense
    void transposed_times() {
        const int64_t parts = std::clamp(
            std::min(s_.nnz / part_nonzeros, s_.nnz / (4 * s_.columns + 1)), int64_t(1),
            std::min(max_parts, blocks_));
        const int64_t sums = parts * slab_size_;
        const int64_t together = std::clamp(max_sums / sums, int64_t(1), slabs_);
        Room room(Room::bytes<V>(together * sums) + dropped_bytes());
        packed_ = room.take<V>(together * sums);
        dropped_ = room.take<V>(dropped_size());
        drop_all();
        for (int64_t slab = 0; slab < slabs_; slab += together)
            add_slabs(slab, std::min(together, slabs_ - slab), parts);
    }

  private:
    static constexpr int64_t widest = cache_line / sizeof(V);

    // Some slabs of X~^T dense.
    void add_slabs(int64_t first_slab, int64_t slabs, int64_t parts) {
        parallel_for(parts * slabs, threads_, [&](int64_t task, int worker) {
            const int64_t part = task % parts, column = (first_slab + task / parts) * widest;
            V* const sum = packed_ + task * slab_size_;
            std::fill_n(sum, slab_size_, V(0));
            for (int64_t b = blocks_ * part / parts; b < blocks_ * (part + 1) / parts; ++b)
                kernels<V, I>().add_rows(elements(b, worker),
                                         args_.dense + cuts_[b] * args_.dense_row + column,
                                         args_.dense_row, std::min(widest, args_.width - column),
                                         sum);
        });
        const int64_t pieces = s_.columns / packed_rows + 1;
        parallel_for(pieces * slabs, threads_, [&](int64_t task, int) {
            const int64_t slab = task / pieces, first = task % pieces * packed_rows;
            add_parts(packed_ + slab * parts * slab_size_, parts, (first_slab + slab) * widest,
                      first, std::min(first + packed_rows, s_.columns));
        });
    }

    int64_t begin(int64_t block) const { return s_.indptr[cuts_[block]]; }

    // With one slab a block's elements are dropped just before they are multiplied; with more, all
    // of them at first.
    int64_t dropped_size() const {
        return !drops_ ? 0 : slabs_ == 1 ? threads_ * largest_ : s_.nnz + blocks_ * drop_slack;
    }
    std::size_t dropped_bytes() const { return Room::bytes<V>(dropped_size()); }

    V* dropped(int64_t block, int worker) const {
        return dropped_ + (slabs_ == 1 ? worker * largest_ : begin(block) + block * drop_slack);
    }

    void drop(int64_t block, V* out) const {
        const FeatureRows<V, I> rows{s_.indptr, s_.indices,        s_.values,   s_.nnz,
                                     s_.columns, args_.row_numbers, args_.rule, args_.scale};
        kernels<V, I>().drop_elements(rows, cuts_[block], cuts_[block + 1], out);
    }

    void drop_all() const {
        if (!drops_ || slabs_ == 1) return;
        parallel_for(blocks_, threads_,
                     [&](int64_t block, int worker) { drop(block, dropped(block, worker)); });
    }

    ElementRows<V, I> elements(int64_t block, int worker) const {
        const int64_t first = begin(block);
        ElementRows<V, I> rows{cuts_[block + 1] - cuts_[block], s_.indptr + cuts_[block], first,
                               s_.indices + first, s_.values + first};
        if (drops_) rows.values = dropped(block, worker);
        if (drops_ && slabs_ == 1) drop(block, dropped(block, worker));
        return rows;
    }

    // Slab i holds columns [i * widest, ...) of the dense matrix.
    void pack() {
        const int64_t pieces = s_.columns / packed_rows + 1;
        parallel_for(pieces * slabs_, threads_, [&](int64_t task, int) {
            const int64_t slab = task / pieces, column = slab * widest;
            const int64_t used = std::min(widest, args_.width - column);
            const int64_t first = task % pieces * packed_rows;
            V* const to = packed_ + slab * slab_size_ + first * packed_stride<V>(used);
            const V* const from = args_.dense + first * args_.dense_row + column;
            kernels<V, I>().pack_rows(std::min(packed_rows, s_.columns - first), nullptr, from,
                                      args_.dense_row, used, to);
        });
    }

    // Rows [first, stop) of the result from `column` on, the sum of the parts that begin at `total`.
    void add_parts(V* total, int64_t parts, int64_t column, int64_t first, int64_t stop) const {
        const int64_t used = std::min(widest, args_.width - column);
        const int64_t stride = packed_stride<V>(used);
        for (int64_t part = 1; part < parts; ++part)
            kernels<V, I>().add_scaled(V(1), total + part * slab_size_ + first * stride,
                                       total + first * stride, (stop - first) * stride);
        for (int64_t row = first; row < stop; ++row)
            std::copy_n(total + row * stride, used, args_.out + row * args_.out_row + column);
    }

    const CsrView<V, I>& s_;
    const TimesArguments<V>& args_;
    const Team team_;
    const int threads_;
    const int64_t slabs_, slab_size_;
    const std::vector<int64_t> cuts_;
    const int64_t blocks_;
    const bool drops_;
    int64_t largest_ = 0;  // elements of a block
    V *packed_ = nullptr, *dropped_ = nullptr;
};

}  // namespace

template <class V, class I>
void times(const CsrView<V, I>& s, const TimesArguments<V>& args, int threads) {
    const int64_t out_rows = args.transposed ? s.columns : s.rows;
    if (out_rows == 0 || args.width == 0) return;
    if (s.rows == 0) {
        for (int64_t row = 0; row < out_rows; ++row)
            std::fill_n(args.out + row * args.out_row, args.width, V(0));
        return;
    }
    if (s.columns >= std::numeric_limits<int32_t>::max())
        throw std::invalid_argument("the sparse matrix has too many columns");
    Product<V, I> product(s, args, threads);
    args.transposed ? product.transposed_times() : product.times();
}

template <class V>
void drop_dense(const V* x, V* out, int64_t n, int64_t d, const int64_t* row_numbers,
                const KeepRule& rule, V scale, int threads) {
    threads = useful_threads(threads, n * d);
    const int64_t pieces = std::min<int64_t>(n, 4 * int64_t(threads));
    parallel_for(pieces, threads, [&](int64_t piece, int) {
        for (int64_t row = n * piece / pieces; row < n * (piece + 1) / pieces; ++row) {
            const uint64_t first = uint64_t(row_numbers ? row_numbers[row] : row) * uint64_t(d);
            kernels<V, int32_t>().drop_range(rule, scale, x + row * d, first, d, out + row * d);
        }
    });
}

template void times(const CsrView<float, int32_t>&, const TimesArguments<float>&, int);
template void times(const CsrView<float, int64_t>&, const TimesArguments<float>&, int);
template void times(const CsrView<double, int32_t>&, const TimesArguments<double>&, int);
template void times(const CsrView<double, int64_t>&, const TimesArguments<double>&, int);
template void drop_dense(const float*, float*, int64_t, int64_t, const int64_t*, const KeepRule&,
                         float, int);
template void drop_dense(const double*, double*, int64_t, int64_t, const int64_t*, const KeepRule&,
                         double, int);

}  // namespace hoplite
