// All hops of a polynomial for one tile of columns at a time.
//
// A tile is a few columns of the signal, packed: rows of 16 to 64 bytes in the order of the sliced
// matrix. It stays in a core's own cache while all the hops pass over it. Threads take different
// tiles; if there are fewer tiles than threads, they share each by rows and meet at every hop. Sums
// over rows are sums over the matrix's parts, added in order, so threads change no bit.
#include "polynomial.h"

#include <algorithm>
#include <utility>

#include "buffer.h"
#include "dispatch.h"
#include "parallel.h"

namespace hoplite {

namespace {

template <class V>
struct Tile {
    int64_t first, used;  // its columns
    int64_t stride;       // elements of a packed row
    V* buffers[4];        // packed matrices: the first two for the hops
    V* scales;            // (hops + 1) x stride
    double* dots;         // (hops + 1) x parts x stride
    V* now(int64_t stage) const { return buffers[stage & 1]; }
    V* before(int64_t stage) const { return buffers[~stage & 1]; }
};

// A part of the matrix: places [begin, end).
struct Part {
    int64_t index, begin, end;
};

// What all four functions have in common. Stage 0 fills the buffers, each other stage is one hop.
template <class V>
class Tiles {
  public:
    Tiles(const Sliced<V>& s, const Recurrence& basis, int64_t width, const V* scales, int buffers,
          bool dots)
        : s_(s), basis_(basis), width_(width), scales_(scales), buffers_(buffers), dots_(dots) {}

    int64_t hops() const { return int64_t(basis_.size()); }

    // step(tile, stage, part) for all parts of all stages of all tiles, then end(tile).
    template <class Do, class End>
    void run(int threads, Do&& step, End&& end) {
        const int64_t work = int64_t(s_.indices.size()) + s_.places;
        const Team team(threads, work * width_ * (hops() + 1));
        threads = team.threads;
        const int64_t count = (width_ + widest - 1) / widest;
        const bool small = work < min_shared_work;
        if (small) threads = int(std::min<int64_t>(threads, count));
        const bool apart = small || count % threads == 0 || count >= 4 * threads;
        const int64_t rooms = apart ? threads : 1;
        Room room(std::size_t(rooms) * bytes(packed_stride<V>(std::min(width_, widest))));
        std::vector<Tile<V>> tiles;
        for (int64_t i = 0; i < rooms; ++i) tiles.push_back(tile_in(room));
        if (apart) {
            parallel_for(count, threads, [&](int64_t index, int worker) {
                Tile<V> tile = prepare(tiles[worker], index);
                for (int64_t stage = 0; stage <= hops(); ++stage)
                    for (int64_t part = 0; part < s_.parts(); ++part)
                        step(tile, stage, part_of(part));
                end(tile);
            });
            return;
        }
        for (int64_t index = 0; index < count; ++index) {
            Tile<V> tile = prepare(tiles[0], index);
            in_stages(hops() + 1, s_.parts(), threads, [&](int64_t stage, int64_t part) {
                step(tile, stage, part_of(part));
            });
            end(tile);
        }
    }

    // The next hop, p_{i+1} X from p_i X and p_{i-1} X: (a_i S + b_i) before - g_i now, in `now`.
    void next_hop(const Tile<V>& tile, int64_t stage, const Part& part) const {
        const Step& step = basis_[stage - 1];
        multiply(tile, stage, part, step, step.g, nullptr, nullptr);
    }

    // One step of Horner or Clenshaw, towards hop i = hops - stage, whose term is added by z and a
    // or afterwards: (a_i S + b_i) before - g_{i+1} now + z diag(a), in `now`.
    void fold_hop(const Tile<V>& tile, int64_t stage, const Part& part, const V* z,
                  const V* a) const {
        const int64_t i = hops() - stage;
        multiply(tile, stage, part, basis_[i], i + 1 < hops() ? basis_[i + 1].g : 0, z, a);
    }

    void pack(const Tile<V>& tile, const Part& part, const V* matrix, int64_t row,
              V* packed) const {
        kernels<V, int32_t>().pack_rows(part.end - part.begin, s_.order.data() + part.begin,
                                        matrix + tile.first, row, tile.used,
                                        packed + part.begin * tile.stride);
    }

    void unpack(const Tile<V>& tile, const Part& part, const V* packed, V* matrix) const {
        kernels<V, int32_t>().unpack_rows(part.end - part.begin, s_.order.data() + part.begin,
                                          packed + part.begin * tile.stride, tile.used, width_,
                                          matrix + tile.first);
    }

  private:
    static constexpr int64_t widest = max_packed_bytes / int64_t(sizeof(V));
    // Below this many nonzeros and rows, threads that share a tile wait longer for one another's
    // rows than they gain.
    static constexpr int64_t min_shared_work = int64_t(1) << 16;

    std::size_t bytes(int64_t stride) const {
        return std::size_t(buffers_) * Room::bytes<V>((s_.places + 1) * stride) +
               Room::bytes<V>((hops() + 1) * stride) +
               Room::bytes<double>(dots_ ? (hops() + 1) * s_.parts() * stride : 0);
    }

    Tile<V> tile_in(Room& room) const {
        const int64_t stride = packed_stride<V>(std::min(width_, widest));
        Tile<V> tile{};
        for (int i = 0; i < buffers_; ++i)
            tile.buffers[i] = room.take<V>((s_.places + 1) * stride);
        tile.scales = room.take<V>((hops() + 1) * stride);
        tile.dots = room.take<double>(dots_ ? (hops() + 1) * s_.parts() * stride : 0);
        return tile;
    }

    Tile<V> prepare(Tile<V> tile, int64_t index) const {
        tile.first = index * widest;
        tile.used = std::min(widest, width_ - tile.first);
        tile.stride = packed_stride<V>(tile.used);
        for (V* hop : {tile.buffers[0], tile.buffers[1]})
            std::fill_n(hop + s_.zero_row() * tile.stride, tile.stride, V(0));
        if (scales_)
            kernels<V, int32_t>().pack_rows(hops() + 1, nullptr, scales_ + tile.first, width_,
                                            tile.used, tile.scales);
        return tile;
    }

    Part part_of(int64_t index) const {
        return {index, s_.cuts[index] * slice_rows, s_.cuts[index + 1] * slice_rows};
    }

    void multiply(const Tile<V>& tile, int64_t stage, const Part& part, const Step& step, double g,
                  const V* z, const V* a) const {
        HopTile<V> hop{};
        hop.slices = s_.slices.data(), hop.indices = s_.indices.data();
        hop.values = s_.values.data(), hop.stride = tile.stride;
        hop.x = tile.before(stage), hop.y = tile.now(stage);
        hop.scale = V(step.a), hop.c = V(step.b);
        hop.z = z, hop.a = a;
        if (g != 0) hop.w = hop.y, hop.b = V(-g);
        kernels<V, int32_t>().hop_slices(hop, s_.cuts[part.index], s_.cuts[part.index + 1]);
    }

    const Sliced<V>& s_;
    const Recurrence& basis_;
    const int64_t width_;
    const V* scales_;
    const int buffers_;
    const bool dots_;
};

// Which rows of the matrix are asked for, by place.
class Requests {
  public:
    template <class V>
    Requests(const Sliced<V>& s, const int64_t* rows, int64_t count) : order_(s.order.data()) {
        if (!rows) return;
        all_ = false;
        listed_.reserve(std::size_t(count));
        for (int64_t r = 0; r < count; ++r) listed_.emplace_back(s.place[rows[r]], r);
        std::sort(listed_.begin(), listed_.end());
    }

    // f(place, request) for those in the part, in order of place; a row may be asked for twice.
    template <class F>
    void each(const Part& part, F&& f) const {
        if (all_) {
            for (int64_t at = part.begin; at < part.end; ++at)
                if (order_[at] >= 0) f(at, order_[at]);
            return;
        }
        auto next = std::lower_bound(listed_.begin(), listed_.end(),
                                     std::pair<int64_t, int64_t>(part.begin, -1));
        for (; next != listed_.end() && next->first < part.end; ++next)
            f(next->first, next->second);
    }

  private:
    bool all_ = true;
    const int64_t* order_;
    std::vector<std::pair<int64_t, int64_t>> listed_;
};

}  // namespace

template <class V>
void polynomial(const Sliced<V>& s, const Recurrence& basis, int64_t width, const V* signal,
                const V* scales, V* out, int threads) {
    if (s.n == 0 || width == 0) return;
    Tiles<V> tiles(s, basis, width, scales, 3, false);
    const int64_t hops = tiles.hops();
    const auto step = [&](const Tile<V>& tile, int64_t stage, const Part& part) {
        V* const packed = tile.buffers[2];
        if (stage == 0) {
            tiles.pack(tile, part, signal, width, packed);
            const V* const scale = tile.scales + hops * tile.stride;
            for (int64_t row = part.begin; row < part.end; ++row)
                for (int64_t k = row * tile.stride, j = 0; j < tile.stride; ++j)
                    tile.now(0)[k + j] = packed[k + j] * scale[j];
        } else {
            tiles.fold_hop(tile, stage, part, packed, tile.scales + (hops - stage) * tile.stride);
        }
        if (stage == hops) tiles.unpack(tile, part, tile.now(stage), out);
    };
    tiles.run(threads, step, [](const Tile<V>&) {});
}

template <class V>
void polynomial_adjoint(const Sliced<V>& s, const Recurrence& basis, int64_t width,
                        const V* gradient, const V* signal, int64_t signal_row, const V* scales,
                        V* out, double* dots, int threads) {
    Tiles<V> tiles(s, basis, width, scales, 4, true);
    const int64_t hops = tiles.hops(), parts = s.parts();
    std::fill_n(dots, (hops + 1) * width, 0.0);
    if (s.n == 0 || width == 0) return;
    const auto step = [&](const Tile<V>& tile, int64_t stage, const Part& part) {
        V *const other = tile.buffers[2], *const total = tile.buffers[3];
        const int64_t stride = tile.stride, first = part.begin * stride;
        if (stage == 0) {
            tiles.pack(tile, part, gradient, width, tile.now(0));
            tiles.pack(tile, part, signal, signal_row, other);
            std::fill_n(total + first, (part.end - part.begin) * stride, V(0));
        } else {
            tiles.next_hop(tile, stage, part);
        }
        kernels<V, int32_t>().weigh_rows(part.end - part.begin, stride, tile.now(stage) + first,
                                         other + first, tile.scales + stage * stride, total + first,
                                         tile.dots + (stage * parts + part.index) * stride);
        if (stage == hops) tiles.unpack(tile, part, total, out);
    };
    tiles.run(threads, step, [&](const Tile<V>& tile) {
        for (int64_t i = 0; i <= hops; ++i)
            for (int64_t part = 0; part < parts; ++part)
                for (int64_t j = 0; j < tile.used; ++j)
                    dots[i * width + tile.first + j] +=
                        tile.dots[(i * parts + part) * tile.stride + j];
    });
}

template <class V>
void gather_hops(const Sliced<V>& s, const Recurrence& basis, int64_t width, const int64_t* rows,
                 int64_t count, const V* signal, V* hops, int threads) {
    if (s.n == 0 || width == 0) return;
    const Requests requests(s, rows, count);
    Tiles<V> tiles(s, basis, width, nullptr, 2, false);
    const auto step = [&](const Tile<V>& tile, int64_t stage, const Part& part) {
        if (stage == 0)
            tiles.pack(tile, part, signal, width, tile.now(0));
        else
            tiles.next_hop(tile, stage, part);
        const V* const now = tile.now(stage);
        V* const to = hops + stage * count * width + tile.first;
        requests.each(part, [&](int64_t at, int64_t request) {
            std::copy_n(now + at * tile.stride, tile.used, to + request * width);
        });
    };
    tiles.run(threads, step, [](const Tile<V>&) {});
}

template <class V>
void scatter_hops(const Sliced<V>& s, const Recurrence& basis, int64_t width, const int64_t* rows,
                  int64_t count, const V* hops, V* signal, int threads) {
    if (s.n == 0 || width == 0) return;
    const Requests requests(s, rows, count);
    Tiles<V> tiles(s, basis, width, nullptr, 2, false);
    const int64_t last = tiles.hops();
    const auto step = [&](const Tile<V>& tile, int64_t stage, const Part& part) {
        V* const now = tile.now(stage);
        if (stage == 0)
            std::fill(now + part.begin * tile.stride, now + part.end * tile.stride, V(0));
        else
            tiles.fold_hop(tile, stage, part, nullptr, nullptr);
        const V* const from = hops + (last - stage) * count * width + tile.first;
        requests.each(part, [&](int64_t at, int64_t request) {
            for (int64_t j = 0; j < tile.used; ++j)
                now[at * tile.stride + j] += from[request * width + j];
        });
        if (stage == last) tiles.unpack(tile, part, now, signal);
    };
    tiles.run(threads, step, [](const Tile<V>&) {});
}

#define HOPLITE_INSTANTIATE(V)                                                                    \
    template void polynomial(const Sliced<V>&, const Recurrence&, int64_t, const V*, const V*,   \
                             V*, int);                                                            \
    template void polynomial_adjoint(const Sliced<V>&, const Recurrence&, int64_t, const V*,      \
                                     const V*, int64_t, const V*, V*, double*, int);              \
    template void gather_hops(const Sliced<V>&, const Recurrence&, int64_t, const int64_t*,       \
                              int64_t, const V*, V*, int);                                        \
    template void scatter_hops(const Sliced<V>&, const Recurrence&, int64_t, const int64_t*,      \
                               int64_t, const V*, V*, int);
HOPLITE_INSTANTIATE(float)
HOPLITE_INSTANTIATE(double)

}  // namespace hoplite
