// Features times a dense matrix, with input dropout.
//
// The sparse matrix is taken in blocks of rows: those of its elements that are kept go into a small
// buffer, and are multiplied from there while it is in cache. What is dropped costs no product. The
// dense matrix is packed into slabs of a cache line a row.
#include "features.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "buffer.h"
#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

constexpr int64_t block_nonzeros = 8192;  // the buffers of a block fit in the L2 cache
constexpr int64_t slack = 32;             // elements that vectors may read or write past the end
constexpr int64_t packed_rows = 1024;     // per task

template <class V, class I>
bool beyond_32_bits(const CsrView<V, I>& s, const TimesArguments<V>& args) {
    const int64_t n = args.transposed ? s.columns : s.rows;
    const int64_t d = args.transposed ? s.rows : s.columns;
    if (n == 0 || d == 0) return false;
    uint64_t most = uint64_t(n - 1);
    if (args.row_numbers) {
        most = 0;
        for (int64_t row = 0; row < n; ++row)
            most = std::max(most, uint64_t(args.row_numbers[row]));
    }
    return most >= (uint64_t(1) << 32) / uint64_t(d);
}

// One call of `times`: blocks of rows of the matrix, slabs of columns of the dense one.
template <class V, class I>
class Product {
  public:
    Product(const CsrView<V, I>& s, const TimesArguments<V>& args, int threads)
        : s_(s), args_(args),
          team_(threads, (s.nnz + s.rows) * (args.width + 8)), threads_(team_.threads),
          slabs_((args.width + widest - 1) / widest),
          slab_size_((s.columns + 1) * packed_stride<V>(std::min(args.width, widest))),
          cuts_(balanced_cuts(s, std::min(s.rows, s.nnz / block_nonzeros + 1))),
          blocks_(int64_t(cuts_.size()) - 1),
          need_high_(args.rule.threshold != 0 && beyond_32_bits(s, args)) {
        for (int64_t block = 0; block < blocks_; ++block) {
            most_rows_ = std::max(most_rows_, cuts_[block + 1] - cuts_[block]);
            room_size_ = std::max(room_size_, begin(block + 1) - begin(block) + slack);
        }
    }

    // With one slab a block is multiplied as soon as it is made; with more, all are made first, and
    // each slab stays in the caches while all blocks pass over it.
    void run() {
        const int64_t buffers = slabs_ == 1 ? threads_ : blocks_;
        Room room(bytes(buffers));
        packed_ = room.take<V>(slabs_ * slab_size_);
        for (int64_t i = 0; i < buffers; ++i)
            kept_.push_back({room.take<int64_t>(most_rows_ + 1), room.take<int32_t>(room_size_),
                             room.take<V>(room_size_)});
        for (int i = 0; i < threads_; ++i) words_.push_back(room.take<uint32_t>(3 * room_size_));
        pack();
        std::vector<Pass> passes{{args_.rule, args_.scale, args_.out}};
        if (args_.whole) passes.push_back({KeepRule{0, 0, 0}, V(1), args_.whole});
        if (slabs_ == 1) {
            parallel_for(blocks_, threads_, [&](int64_t block, int worker) {
                for (const Pass& pass : passes) {
                    keep(pass, block, worker, kept_[worker]);
                    multiply(pass, block, 0, kept_[worker]);
                }
            });
            return;
        }
        for (const Pass& pass : passes) {
            parallel_for(blocks_, threads_, [&](int64_t block, int worker) {
                keep(pass, block, worker, kept_[block]);
            });
            parallel_for(blocks_ * slabs_, threads_, [&](int64_t task, int) {
                multiply(pass, task % blocks_, task / blocks_, kept_[task % blocks_]);
            });
        }
    }

  private:
    static constexpr int64_t widest = cache_line / sizeof(V);

    // What is kept, and where the product goes.
    struct Pass {
        KeepRule rule;
        V scale;
        V* out;
    };

    int64_t begin(int64_t block) const { return s_.indptr[cuts_[block]]; }

    std::size_t bytes(int64_t buffers) const {
        const std::size_t kept = Room::bytes<int64_t>(most_rows_ + 1) +
                                 Room::bytes<int32_t>(room_size_) + Room::bytes<V>(room_size_);
        return Room::bytes<V>(slabs_ * slab_size_) + std::size_t(buffers) * kept +
               std::size_t(threads_) * Room::bytes<uint32_t>(3 * room_size_);
    }

    // Slab i holds columns [i * widest, ...) of the dense matrix and, at the end, a row of zeros.
    void pack() {
        const int64_t pieces = s_.columns / packed_rows + 1;
        parallel_for(pieces * slabs_, threads_, [&](int64_t task, int) {
            const int64_t slab = task / pieces, column = slab * widest;
            const int64_t used = std::min(widest, args_.width - column);
            const int64_t first = task % pieces * packed_rows;
            const int64_t count = std::min(packed_rows, s_.columns - first);
            V* const to = packed_ + slab * slab_size_ + first * packed_stride<V>(used);
            const V* const from = args_.dense + first * args_.dense_row + column;
            kernels<V, I>().pack_rows(count, nullptr, from, args_.dense_row, used, to);
            if (first + count == s_.columns)
                std::fill_n(to + count * packed_stride<V>(used), packed_stride<V>(used), V(0));
        });
    }

    // Whether all of a block is kept as it is, so that it needs no copy. The last one does: a few
    // elements behind it are read.
    bool as_is(const Pass& pass, int64_t block) const {
        return sizeof(I) == sizeof(int32_t) && pass.rule.threshold == 0 && pass.scale == V(1) &&
               begin(block + 1) + slack <= s_.nnz;
    }

    void keep(const Pass& pass, int64_t block, int worker, const Kept<V>& kept) const {
        if (as_is(pass, block)) return;
        const int64_t d = args_.transposed ? s_.rows : s_.columns;
        const FeatureRows<V, I> rows{s_.indptr,         s_.indices, s_.values,  args_.transposed, d,
                                     args_.row_numbers, pass.rule, pass.scale};
        kernels<V, I>().keep_elements(rows, cuts_[block], cuts_[block + 1], need_high_,
                                      words_[worker], room_size_, kept);
    }

    void multiply(const Pass& pass, int64_t block, int64_t slab, const Kept<V>& kept) const {
        const int64_t column = slab * widest;
        TimesTile<V> tile{};
        tile.rows = cuts_[block + 1] - cuts_[block];
        tile.starts = kept.starts, tile.columns = kept.columns, tile.values = kept.values;
        if (as_is(pass, block)) {
            tile.starts = s_.indptr + cuts_[block], tile.values = s_.values;
            tile.columns = reinterpret_cast<const int32_t*>(s_.indices);
        }
        tile.x = packed_ + slab * slab_size_, tile.zero_row = s_.columns;
        tile.y = pass.out + cuts_[block] * args_.out_row + column, tile.y_stride = args_.out_row;
        tile.width = std::min(widest, args_.width - column);
        kernels<V, I>().times_rows(tile);
    }

    const CsrView<V, I>& s_;
    const TimesArguments<V>& args_;
    const Team team_;
    const int threads_;
    const int64_t slabs_, slab_size_;
    const std::vector<int64_t> cuts_;
    const int64_t blocks_;
    const bool need_high_;
    int64_t most_rows_ = 0, room_size_ = 0;  // of a block
    V* packed_ = nullptr;
    std::vector<Kept<V>> kept_;
    std::vector<uint32_t*> words_;           // per worker
};

}  // namespace

template <class V, class I>
void times(const CsrView<V, I>& s, const TimesArguments<V>& args, int threads) {
    if (s.rows == 0 || args.width == 0) return;
    if (s.columns >= std::numeric_limits<int32_t>::max())
        throw std::invalid_argument("the sparse matrix has too many columns");
    Product<V, I>(s, args, threads).run();
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
