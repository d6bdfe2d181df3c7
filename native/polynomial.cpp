// All hops of a polynomial for one tile of columns at a time.
//
// A tile is a few columns of the signal, packed: n rows of 16 to 128 bytes. It stays in a core's
// own cache while all the hops pass over it, and threads take different tiles, so they meet once
// per polynomial and not once per hop. A single tile they share by rows and meet at every hop.
// Columns that only fill a tile up are zero. A tile's rows, like
// those of S, are ordered by length (csr.h).
#include "polynomial.h"

#include <vector>

#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

// One thread's rows of a tile.
struct Rows {
    int64_t begin, end;
    bool shared;  // others have the other rows
    bool has(int64_t row) const { return begin <= row && row < end; }
    // Wait for the others, whose rows the next hop reads.
    void meet() const {
        if (shared) meet_team();
    }
};

// The columns [first, first + used) of a matrix of `width` as rows of `stride`, and back.
template <class V>
void pack(const V* matrix, const std::vector<int64_t>& order, const Rows& mine, int64_t width,
          int64_t first, int64_t used, int64_t stride, V* tile) {
    for (int64_t at = mine.begin; at < mine.end; ++at) {
        const V* from = matrix + order[at] * width + first;
        V* to = tile + at * stride;
        for (int64_t j = 0; j < used; ++j) to[j] = from[j];
        for (int64_t j = used; j < stride; ++j) to[j] = V(0);
    }
}

template <class V>
void unpack(const V* tile, const std::vector<int64_t>& order, const Rows& mine, int64_t width,
            int64_t first, int64_t used, int64_t stride, V* matrix) {
    for (int64_t at = mine.begin; at < mine.end; ++at)
        std::copy_n(tile + at * stride, used, matrix + order[at] * width + first);
}

// How the columns are cut, and room for each worker.
template <class V>
class Tiles {
  public:
    Tiles(int64_t n, int64_t width, int64_t buffers, int64_t work, int threads)
        : company_(threads, work), threads_(company_.threads), n_(n), buffers_(buffers) {
        // As wide as the registers allow, but at least one tile per thread if that keeps a
        // vector's worth of columns: each tile reads all of S again.
        stride = widest;
        while (stride > widest / 4 && (width + stride - 1) / stride < threads_) stride /= 2;
        while (stride > narrowest && stride / 2 >= width) stride /= 2;
        count = (width + stride - 1) / stride;
        if (count > 1) threads_ = int(std::min<int64_t>(threads_, count));
        room_.resize(std::size_t(count > 1 ? threads_ : 1) * buffers * n * stride);
    }

    // f(first column, columns, buffers, rows) for each tile.
    template <class F>
    void each(int64_t width, F&& f) {
        parallel_for(count, threads_, [&](int64_t tile, int worker) {
            const int64_t first = tile * stride;
            V* room = room_.data() + std::size_t(worker) * buffers_ * n_ * stride;
            f(first, std::min(stride, width - first), room, Rows{0, n_, false});
        });
    }

    // The same; if there is but one tile, all threads call f for it, each with rows of its own.
    template <class I, class F>
    void each_shared(const CsrView<V, I>& s, int64_t width, F&& f) {
        const bool worth_meeting = (s.nnz + s.rows) * width >= min_hop_work;
        if (count > 1 || threads_ == 1 || !worth_meeting) return each(width, f);
        const std::vector<int64_t> cuts = balanced_cuts(s, threads_);
        in_team(threads_, [&](int worker, int workers) {
            const Rows mine{cuts[worker * threads_ / workers],
                            cuts[(worker + 1) * threads_ / workers], workers > 1};
            f(0, width, room_.data(), mine);
        });
    }

    int64_t stride, count;
    static constexpr int64_t widest = 128 / int64_t(sizeof(V));

  private:
    Company company_;
    static constexpr int64_t min_hop_work = int64_t(1) << 17;  // of all rows of a hop
    static constexpr int64_t narrowest = 16 / int64_t(sizeof(V));
    int threads_;
    int64_t n_, buffers_;
    std::vector<V> room_;
};

// The description of one product Y = scale S X + Z diag(a) + b W on packed tiles.
template <class V, class I>
SpmmTile<V, I> product(const CsrView<V, I>& s, int64_t stride, const V* x, V* y) {
    SpmmTile<V, I> tile{};
    tile.indptr = s.indptr, tile.indices = s.indices, tile.values = s.values, tile.nnz = s.nnz;
    tile.x = x, tile.y = y, tile.x_stride = tile.y_stride = tile.width = stride;
    tile.last = -1;  // every row is a whole tile wide, so no load passes the end
    tile.by_length = true;
    tile.prefetch = s.columns * stride * int64_t(sizeof(V)) >= prefetch_min_bytes;
    return tile;
}

// These rows of a product, and b times its operand added to them.
template <class V, class I>
void multiply(const SpmmTile<V, I>& tile, const Rows& mine, V b) {
    kernels<V, I>().spmm_rows(tile, mine.begin, mine.end);
    const int64_t first = mine.begin * tile.width, count = (mine.end - mine.begin) * tile.width;
    if (b != V(0)) kernels<V, I>().add_scaled(b, tile.x + first, tile.y + first, count);
}

template <class V, class I, class Arguments>
int64_t work_of(const CsrView<V, I>& s, const Arguments& args) {
    return (s.nnz + s.rows) * args.width * (args.hops() + 1);
}

// One step of p_0 X, p_1 X, ...: from hop i in `now` and hop i - 1 in `before` to hop i + 1, `now`:
// (a_i S + b_i) now - g_i before.
template <class V, class I>
void next_hop(const CsrView<V, I>& s, const Rows& mine, const Step& step, int64_t stride, V*& now,
              V*& before) {
    SpmmTile<V, I> tile = product(s, stride, now, before);
    tile.scale = V(step.a);
    if (step.g != 0) tile.w = before, tile.b = V(-step.g);
    multiply(tile, mine, V(step.b));
    std::swap(now, before);
}

// One step of Horner or Clenshaw towards hop i, where the term of hop i is added by z and a or
// afterwards: (a_i S + b_i) total - g_{i+1} ahead. `ahead` holds what came before `total` and
// receives the result, which is then total.
template <class V, class I>
void fold_hop(const CsrView<V, I>& s, const Rows& mine, const Recurrence& basis, int64_t i,
              int64_t stride, V*& total, V*& ahead, const V* z, const V* a) {
    SpmmTile<V, I> tile = product(s, stride, total, ahead);
    tile.z = z, tile.a = a;
    const double g = i + 1 < int64_t(basis.size()) ? basis[i + 1].g : 0;
    tile.scale = V(basis[i].a);
    if (g != 0) tile.w = ahead, tile.b = V(-g);
    multiply(tile, mine, V(basis[i].b));
    std::swap(total, ahead);
}

}  // namespace

template <class V, class I>
void combine(const RowsByLength<V, I>& rows, const PolynomialArguments<V>& args, int threads) {
    const CsrView<V, I> s = rows.view();
    const int64_t n = s.rows, width = args.width;
    if (n == 0 || width == 0) return;
    Tiles<V> tiles(n, width, 3, work_of(s, args), threads);
    const int64_t stride = tiles.stride, size = n * stride;
    tiles.each_shared(s, width, [&](int64_t first, int64_t used, V* room, const Rows& mine) {
        V *signal = room, *total = room + size, *next = room + 2 * size;
        V scales[128 / sizeof(V)] = {};
        pack(args.signal, rows.order, mine, width, first, used, stride, signal);
        std::copy_n(args.scales + args.hops() * width + first, used, scales);
        for (int64_t row = mine.begin; row < mine.end; ++row)
            for (int64_t j = 0; j < stride; ++j)
                total[row * stride + j] = signal[row * stride + j] * scales[j];
        for (int64_t i = args.hops() - 1; i >= 0; --i) {
            const V* of_hop = args.scales + i * width + first;
            std::copy_n(of_hop, used, scales);
            const bool counts = std::any_of(of_hop, of_hop + used, [](V a) { return a != V(0); });
            mine.meet();
            fold_hop(s, mine, args.basis, i, stride, total, next, counts ? signal : nullptr,
                     scales);
        }
        unpack(total, rows.order, mine, width, first, used, stride, args.out);
    });
}

template <class V, class I>
void adjoint(const RowsByLength<V, I>& rows, const PolynomialArguments<V>& args, int threads) {
    const CsrView<V, I> s = rows.view();
    const int64_t n = s.rows, width = args.width;
    std::fill_n(args.dots, (args.hops() + 1) * width, 0.0);
    if (n == 0 || width == 0) return;
    if (width <= Tiles<V>::widest / 4) threads = 1;  // a single tile, and its dots are no rows
    Tiles<V> tiles(n, width, 4, work_of(s, args), threads);
    const int64_t stride = tiles.stride, size = n * stride;
    tiles.each(width, [&](int64_t first, int64_t used, V* room, const Rows& all) {
        V *now = room, *before = room + size, *other = room + 2 * size, *out = room + 3 * size;
        V scales[128 / sizeof(V)] = {};
        double dots[128 / sizeof(V)];
        pack(args.signal, rows.order, all, width, first, used, stride, now);
        pack(args.other, rows.order, all, width, first, used, stride, other);
        std::fill_n(out, size, V(0));
        for (int64_t i = 0; i <= args.hops(); ++i) {
            if (i > 0) next_hop(s, all, args.basis[i - 1], stride, now, before);
            std::copy_n(args.scales + i * width + first, used, scales);
            kernels<V, I>().weigh_rows(n, stride, now, other, scales, out, dots);
            std::copy_n(dots, used, args.dots + i * width + first);
        }
        unpack(out, rows.order, all, width, first, used, stride, args.out);
    });
}

template <class V, class I>
void gather_hops(const RowsByLength<V, I>& rows, const HopArguments<V>& args, const V* signal,
                 V* hops, int threads) {
    const CsrView<V, I> s = rows.view();
    const int64_t n = s.rows, width = args.width;
    if (n == 0 || width == 0) return;
    Tiles<V> tiles(n, width, 2, work_of(s, args), threads);
    const int64_t stride = tiles.stride;
    tiles.each_shared(s, width, [&](int64_t first, int64_t used, V* room, const Rows& mine) {
        V *now = room, *before = room + n * stride;
        pack(signal, rows.order, mine, width, first, used, stride, now);
        for (int64_t i = 0; i <= args.hops(); ++i) {
            if (i > 0) {
                mine.meet();
                next_hop(s, mine, args.basis[i - 1], stride, now, before);
            }
            for (int64_t r = 0; r < args.count; ++r) {
                const int64_t at = rows.place[args.rows ? args.rows[r] : r];
                if (mine.has(at))
                    std::copy_n(now + at * stride, used,
                                hops + (i * args.count + r) * width + first);
            }
        }
    });
}

template <class V, class I>
void scatter_hops(const RowsByLength<V, I>& rows, const HopArguments<V>& args, const V* hops,
                  V* signal, int threads) {
    const CsrView<V, I> s = rows.view();
    const int64_t n = s.rows, width = args.width;
    if (n == 0 || width == 0) return;
    Tiles<V> tiles(n, width, 2, work_of(s, args), threads);
    const int64_t stride = tiles.stride;
    tiles.each_shared(s, width, [&](int64_t first, int64_t used, V* room, const Rows& mine) {
        V *total = room, *ahead = room + n * stride;
        std::fill_n(total + mine.begin * stride, (mine.end - mine.begin) * stride, V(0));
        for (int64_t i = args.hops(); i >= 0; --i) {
            if (i < args.hops()) {
                mine.meet();
                fold_hop<V, I>(s, mine, args.basis, i, stride, total, ahead, nullptr, nullptr);
            }
            for (int64_t r = 0; r < args.count; ++r) {  // a row may be listed twice
                const int64_t at = rows.place[args.rows ? args.rows[r] : r];
                if (!mine.has(at)) continue;
                const V* from = hops + (i * args.count + r) * width + first;
                for (int64_t j = 0; j < used; ++j) total[at * stride + j] += from[j];
            }
        }
        unpack(total, rows.order, mine, width, first, used, stride, signal);
    });
}

#define HOPLITE_INSTANTIATE(V, I)                                                            \
    template void combine(const RowsByLength<V, I>&, const PolynomialArguments<V>&, int);    \
    template void adjoint(const RowsByLength<V, I>&, const PolynomialArguments<V>&, int);    \
    template void gather_hops(const RowsByLength<V, I>&, const HopArguments<V>&, const V*,   \
                              V*, int);                                                      \
    template void scatter_hops(const RowsByLength<V, I>&, const HopArguments<V>&, const V*,  \
                               V*, int);
HOPLITE_INSTANTIATE(float, int32_t)
HOPLITE_INSTANTIATE(float, int64_t)
HOPLITE_INSTANTIATE(double, int32_t)
HOPLITE_INSTANTIATE(double, int64_t)

}  // namespace hoplite
