// The arguments of the innermost loops, and the table of them for one instruction set.
// V is float or double (values), I is int32_t or int64_t (column indices).
#pragma once
#include <cstdint>

namespace hoplite {

constexpr int64_t prefetch_min_bytes = int64_t(512) << 10;  // operands beyond the L2 cache
constexpr int max_tile_bytes = 256;  // a tile's accumulators must fit in the vector registers

constexpr int max_packed_bytes = 64;
constexpr int64_t drop_slack = 16;

// Elements of a packed row of so many columns: 16, 32 or 64 bytes.
template <class V>
constexpr int64_t packed_stride(int64_t width) {
    int64_t stride = 16 / int64_t(sizeof(V));
    while (stride < width) stride *= 2;
    return stride;
}

// A block of columns of Y = scale * (S X) + a Z + b W, at most max_tile_bytes wide.
// Pointers to X, Y, Z, W and a are already moved to the block's first column.
template <class V, class I>
struct SpmmTile {
    const int64_t* indptr;
    const I* indices;
    const V* values;
    int64_t nnz;
    const V* x;
    int64_t x_stride;     // elements from one row to the next
    V* y;
    int64_t y_stride;
    int64_t width;        // valid columns
    int64_t last;         // the row of X to be read from last_row, or -1: a tile may load more
    const V* last_row;    // lanes than columns, which only at the end of X is out of bounds
    bool prefetch;        // X is too big for the caches near the core
    V scale;
    const V* z;           // or null; rows are y_stride apart
    const V* a;
    const V* w;           // or null; rows are y_stride apart; may be y
    V b;
};

// Four rows of a square matrix, for sums side by side. Nonzero i of row r is entry
// first + 4 i + r for i < common (rows that are shorter are filled up with zeros); what longer rows
// have left, rest[0], rest[1], ... entries, follows row by row.
constexpr int slice_rows = 4;
struct Slice {
    int64_t first;
    int32_t common, rest[slice_rows];
};

// One hop on packed tiles, whose rows are `stride` elements.
// Y = scale * (S X) + a Z + b W + c X.
template <class V>
struct HopTile {
    const Slice* slices;
    const int32_t* indices;  // of rows of X
    const V* values;
    int64_t stride;
    const V* x;
    V* y;
    V scale;
    const V* z;  // or null
    const V* a;
    const V* w;  // or null; may be y
    V b, c;
};

// Input dropout: element e is kept iff hash(e; key0, key1) >= threshold.
struct KeepRule {
    uint32_t key0, key1, threshold;
};

// Rows of a sparse n x d matrix X, and which of its elements are kept: row * d + column is hashed.
template <class V, class I>
struct FeatureRows {
    const int64_t* indptr;
    const I* indices;
    const V* values;
    int64_t nnz, d;
    const int64_t* numbers;  // the number of each row that is hashed, or null for its own
    KeepRule rule;
    V scale;                 // of what is kept
};

// Some rows of X; row r has the elements starts[r] - first to starts[r + 1] - first of `columns` and
// `values`.
template <class V, class I>
struct ElementRows {
    int64_t count;
    const int64_t* starts;
    int64_t first;
    const I* columns;
    const V* values;
};

// Their product with a packed dense matrix of up to max_packed_bytes a row: y = rows x. With other
// values of the same elements, also their product with x.
template <class V>
struct TimesTile {
    const V* x;
    V* y;
    const V* other_values;  // or null
    V* other_y;             // rows as those of y
    int64_t y_stride, width;
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
    // The rows of slices [begin, end).
    void (*hop_slices)(const HopTile<V>& tile, int64_t begin, int64_t end);
    // For `count` packed rows, of whole slices:
    // out += g diag(scales), dots = column sums of g * other.
    void (*weigh_rows)(int64_t count, int64_t stride, const V* g, const V* other, const V* scales,
                       V* out, double* dots);
    // Rows of a tile of packed_stride<V>(width) elements from the first `width` of a matrix's rows,
    // which are `apart` elements apart. Row i is the matrix's row order[i], or i without an order,
    // or zeros where that is -1. And back.
    void (*pack_rows)(int64_t count, const int64_t* order, const V* matrix, int64_t apart,
                      int64_t width, V* tile);
    void (*unpack_rows)(int64_t count, const int64_t* order, const V* tile, int64_t width,
                        int64_t apart, V* matrix);
    // The elements of rows [begin, end), times scale where they are kept and 0 elsewhere. Up to
    // drop_slack elements behind them are written, too.
    void (*drop_elements)(const FeatureRows<V, I>& x, int64_t begin, int64_t end, V* out);
    void (*times_rows)(const ElementRows<V, I>& rows, const TimesTile<V>& tile);
    // x += rows' y, x packed and as wide as y: the product with the transpose.
    void (*add_rows)(const ElementRows<V, I>& rows, const V* y, int64_t y_stride, int64_t width,
                     V* x);
    // out[k] = keep(first + k) ? scale * values[k] : 0
    void (*drop_range)(const KeepRule& rule, V scale, const V* values, uint64_t first,
                       int64_t count, V* out);
    // y += c u
    void (*add_scaled)(V c, const V* u, V* y, int64_t count);
    void (*adam)(const AdamStep<V>& step, const V* gradient, V* weight, V* mean, V* square,
                 int64_t count);
};

}  // namespace hoplite
