// The arguments of the innermost loops, and the table of them for one instruction set.
// V is float or double (values), I is int32_t or int64_t (column indices).
#pragma once
#include <cstdint>

namespace hoplite {

constexpr int64_t prefetch_min_bytes = int64_t(512) << 10;  // operands beyond the L2 cache
constexpr int max_tile_bytes = 256;  // a tile's accumulators must fit in the vector registers

// A block of columns of Y = scale * (S X) + a Z + b W, at most max_tile_bytes wide.
// Pointers to X, Y, Z, W and a are already moved to the block's first column.
template <class V, class I>
struct SpmmTile {
    const int64_t* indptr;
    const I* indices;
    const V* values;      // of the nonzeros from first_value on
    int64_t first_value;
    int64_t nnz;
    const V* x;
    int64_t x_stride;     // elements from one row to the next
    V* y;
    int64_t y_stride;
    int64_t width;        // valid columns
    int64_t last;         // the row of X to be read from last_row, or -1: a tile may load more
    const V* last_row;    // lanes than columns, which only at the end of X is out of bounds
    bool prefetch;        // X is too big for the caches near the core
    bool four_chains;     // sum a row in four parts if the tile is one vector wide: faster, but
                          // then the bits depend on the width of the tile
    bool by_length;       // no row has fewer nonzeros than the one before it, and rows of X lie
                          // together: a few neighbours can be summed in step
    V scale;
    const V* z;           // or null; rows are y_stride apart
    const V* a;
    const V* w;           // or null; rows are y_stride apart; may be y
    V b;
};

// Input dropout of one run: element e is kept iff hash(e; key0, key1) >= threshold.
struct KeepRule {
    uint32_t key0, key1, threshold;
};

// Which elements of X the nonzeros of a matrix are: it is X (n x d) or, transposed, X^T (d x n).
template <class I>
struct Numbering {
    const int64_t* indptr;
    const I* indices;
    bool transposed;
    int64_t d;
    const int64_t* numbers;  // row of X -> the row number that is hashed, or null for itself
};

// drop(X) Theta, or its transpose, for up to `lanes` runs (the table's) of at most
// max_tile_bytes / sizeof(V) classes.
template <class V, class I>
struct LanesTile {
    Numbering<I> numbering;  // and the matrix itself
    const V* values;
    bool need_high;          // some element is beyond 32 bits
    const uint32_t *key0, *key1, *threshold;  // per lane, as are the scales; lanes without a run
    const V* scale;                           // may hold anything
    const V* x;              // [columns, classes, lanes]
    int64_t x_stride;        // elements from one row to the next
    V* y;                    // element (row, run, class) is y[row * y_row + run * y_run + class]
    int64_t y_row, y_run;
    int64_t runs, width;     // valid lanes and classes
    bool prefetch;           // x is too big for the caches near the core
};

// Rows of one operand per run: element (row, run, c) is x[row * this->row + run * this->run + c].
template <class V>
struct RunsView {
    const V* x;
    int64_t row, run;
    int64_t runs, width;
};

// w -= rate * m / (sqrt(v) * root_factor + 1e-8), after g += decay * w, and m and v as usual.
template <class V>
struct AdamStep {
    V rate, decay, root_factor;
};

template <class V, class I>
struct Kernels {
    // Rows [begin, end) of the tile.
    void (*spmm_rows)(const SpmmTile<V, I>& tile, int64_t begin, int64_t end);
    // The elements e_k of the nonzeros in rows [begin, end), split into e_k mod 2^32 and
    // (e_k div 2^32) * 0x9E3779B9 mod 2^32, both folded (hash.h), in low[k] and high[k]; high may
    // be null if all of them are zero.
    void (*number_elements)(const Numbering<I>& numbering, int64_t begin, int64_t end,
                            uint32_t* low, uint32_t* high);
    // out[k] = keep(e_k) ? scale * values[k] : 0 for such elements.
    void (*drop_values)(const KeepRule& rule, V scale, const V* values, const uint32_t* low,
                        const uint32_t* high, int64_t count, V* out);
    // Rows [begin, end) of the tile.
    void (*dropout_lanes)(const LanesTile<V, I>& tile, int64_t begin, int64_t end);
    int64_t lanes;  // of a whole vector
    // Rows [begin, end) for it: out[row, c, lane] = element (row, lane, c), or 0 without a run.
    void (*pack_lanes)(const RunsView<V>& view, int64_t begin, int64_t end, V* out);
    // Rows [begin, end) of the first run: out[row, c] = element (row, 0, c).
    void (*pack_rows)(const RunsView<V>& view, int64_t begin, int64_t end, V* out);
    // As drop_values for consecutive elements first, first + 1, ...
    void (*drop_range)(const KeepRule& rule, V scale, const V* values, uint64_t first,
                       int64_t count, V* out);
    // For n packed rows of `stride` (16, 32, 64 or 128 bytes):
    // out += g diag(scales), dots = column sums of g * other.
    void (*weigh_rows)(int64_t n, int64_t stride, const V* g, const V* other, const V* scales,
                       V* out, double* dots);
    // y += c u
    void (*add_scaled)(V c, const V* u, V* y, int64_t count);
    void (*adam)(const AdamStep<V>& step, const V* gradient, V* weight, V* mean, V* square,
                 int64_t count);
};

}  // namespace hoplite
