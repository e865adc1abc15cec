/* Products through tiles (AMX), which multiply bfloat16 and add in float32, or multiply bytes and add
 * in 32 bits.  Included by linear_layout.h. */

#include "linear_amx_layout.h"

/* Rows of a tile, rows at a time. */
enum { HIGH = 16, TALL = 2 * HIGH };
/* Bytes of weights that the caches are asked for before they are needed, the nearest and the next. */
enum { NEAR = 8192, FAR = 32768 };

/* Tiles 0 to 3: sums, 4 and 5: rows, 6 and 7: weights; of INT16 0 to 4: sums, 5: rows. */
struct shape {
    uint8_t palette, start_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void set_shape(int32_t rows)
{
    const uint8_t upper = (uint8_t)(rows < HIGH ? rows : HIGH);
    const uint8_t lower = (uint8_t)(rows > HIGH ? rows - HIGH : rows);
    struct shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = i > 5 ? HIGH : i == 2 || i == 3 || i == 5 ? lower : upper;
    }
    _tile_loadconfig(&shape);
}

/* What is cached of a shape: setting one costs as much as many products. */
INLINE void shape_for(int32_t rows, int32_t *set)
{
    if (*set != rows)
        set_shape(rows);
    *set = rows;
}

INLINE void no_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* The four sums of a block: of 32 rows and a panel (tall), or of 16 rows and two panels. */
#define EACH_SUM(operation, out, stride, tall, panels)                                             \
    do {                                                                                           \
        operation(0, out, (stride) * 4);                                                           \
        operation(1, (out) + 16, (stride) * 4);                                                    \
        if (tall) {                                                                                \
            operation(2, (out) + HIGH * (stride), (stride) * 4);                                   \
            operation(3, (out) + HIGH * (stride) + 16, (stride) * 4);                              \
        } else if ((panels) == 2) {                                                                \
            operation(2, (out) + 32, (stride) * 4);                                                \
            operation(3, (out) + 48, (stride) * 4);                                                \
        }                                                                                          \
    } while (0)

/* Adds one part of a tile's inputs to all four; a sum waits for the one before it, so the same one
 * is never taken twice in a row.  next: weights of the second panel. */
#define ADD(multiply, x, x_stride, weights, next, tall, panels)                                    \
    do {                                                                                           \
        _tile_loadd(4, x, x_stride);                                                               \
        _tile_loadd(6, weights, 4 * WIDTH);                                                        \
        multiply(0, 4, 6);                                                                         \
        _tile_loadd(7, (const char *)(weights) + 64, 4 * WIDTH);                                   \
        multiply(1, 4, 7);                                                                         \
        if (tall) {                                                                                \
            _tile_loadd(5, (x) + HIGH * (x_stride), x_stride);                                     \
            multiply(2, 5, 6);                                                                     \
            multiply(3, 5, 7);                                                                     \
        } else if ((panels) == 2) {                                                                \
            _tile_loadd(6, next, 4 * WIDTH);                                                       \
            multiply(2, 4, 6);                                                                     \
            _tile_loadd(7, (const char *)(next) + 64, 4 * WIDTH);                                  \
            multiply(3, 4, 7);                                                                     \
        }                                                                                          \
    } while (0)

/* Tiles come too irregularly for the processor to guess what follows; so it is told. */
INLINE void fetch_ahead(const void *weights, int bytes)
{
    for (int at = 0; at < bytes; at += 64) {
        _mm_prefetch((const char *)weights + NEAR + at, _MM_HINT_T0);
        _mm_prefetch((const char *)weights + FAR + at, _MM_HINT_T2);
    }
}

/* Panels [panel, panel + panels) of pairs; two only if there are no more rows than a tile's. */
INLINE void multiply_pairs(const struct product *product, int32_t panel, int panels, int32_t start,
                           int32_t stop, int32_t *set)
{
    const struct packed *packed = product->packed;
    const int64_t apart = (int64_t)packed->depth * WIDTH, part = (int64_t)packed->depth * 2;
    const int64_t x_stride = product->prepared_stride;
    for (int32_t row = start; row < stop; row += TALL) {
        const int32_t rows = stop - row < TALL ? stop - row : TALL;
        const int tall = rows > HIGH, across = tall ? 1 : panels;
        float *out = product->out + row * product->out_stride + panel * WIDTH - product->origin;
        shape_for(rows, set);
        no_sums();
        for (int32_t k = 0; k < packed->depth; k += DEEP) {
            const uint16_t *first = (const uint16_t *)packed->weights + panel * apart + (int64_t)k * WIDTH;
            const char *x = product->prepared + row * x_stride + (packed->parts - 1) * part + k * 2;
            if (row == start)
                for (int p = 0; p < across; p++)
                    fetch_ahead(first + p * apart, 2 * DEEP * WIDTH);
            for (int32_t i = 0; i < packed->parts; i++, x -= part)
                ADD(_tile_dpbf16ps, x, x_stride, first, first + apart, tall, across);
        }
        EACH_SUM(_tile_stored, out, product->out_stride, tall, across);
    }
}

/* Sums of sixteen rows and outputs: high with the three bytes of a row, low with the first two.  A
 * sum waits for the one before it: so each product has its own. */
INLINE void add_bytes(const char *x, int64_t x_stride, const int8_t *weights, int32_t depth,
                      int both, int ahead)
{
    const int bytes = both ? 2 * TILE_BYTES : TILE_BYTES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    for (int32_t k = 0; k < depth; k += 64, weights += bytes, x += 64) {
        if (ahead)
            fetch_ahead(weights, bytes);
        _tile_loadd(5, x, x_stride);
        _tile_loadd(6, weights, 64);
        _tile_dpbssd(0, 5, 6);
        if (both) {
            _tile_loadd(7, weights + TILE_BYTES, 64);
            _tile_dpbssd(1, 5, 7);
        }
        _tile_loadd(5, x + depth, x_stride);
        _tile_dpbssd(2, 5, 6);
        if (both)
            _tile_dpbssd(3, 5, 7);
        _tile_loadd(5, x + 2 * depth, x_stride);
        _tile_dpbssd(4, 5, 6);
    }
}

/* Whole numbers from their bytes, times the scales of row and output. */
INLINE void put_bytes(int32_t sums[5][HIGH][LANES], const char *x, int64_t x_stride, int32_t depth,
                      vec scales, float *out, int64_t out_stride, int32_t rows)
{
    for (int32_t i = 0; i < rows; i++) {
        const float scale = *(const float *)(x + i * x_stride + 3 * depth);
        const veci middle = *(const veci *)sums[1][i] + *(const veci *)sums[2][i];
        const veci low = *(const veci *)sums[3][i] + *(const veci *)sums[4][i];
        const vec whole = __builtin_convertvector(*(const veci *)sums[0][i], vec) * 65536.0f +
                          (__builtin_convertvector(middle, vec) * 256.0f +
                           __builtin_convertvector(low, vec));
        store(out + i * out_stride, whole * scales * scale);
    }
}

INLINE void multiply_bytes(const struct product *product, int32_t panel, int32_t start, int32_t stop,
                           int both, int32_t *set)
{
    const struct packed *packed = product->packed;
    const int64_t x_stride = product->prepared_stride;
    const float unit = both ? 256 / (LARGEST_OF_TWO * LARGEST_OF_THREE)
                            : 1 / (LARGEST_OF_ONE * LARGEST_OF_THREE);
    _Alignas(64) int32_t sums[5][HIGH][LANES];
    for (int32_t output = panel * WIDTH; output < (panel + 1) * WIDTH; output += LANES)
        for (int32_t row = start; row < stop; row += HIGH) {
            const int32_t rows = stop - row < HIGH ? stop - row : HIGH;
            const char *x = product->prepared + row * x_stride;
            shape_for(rows, set);
            add_bytes(x, x_stride, bytes_at(packed, output, 0), packed->depth, both, row == start);
            _tile_stored(0, sums[0], 64);
            _tile_stored(1, sums[1], 64);
            _tile_stored(2, sums[2], 64);
            _tile_stored(3, sums[3], 64);
            _tile_stored(4, sums[4], 64);
            put_bytes(sums, x, x_stride, packed->depth,
                      *(const loose_vec *)(packed->scales + output) * splat(unit),
                      product->out + row * product->out_stride + output - product->origin,
                      product->out_stride, rows);
        }
}

static void finish(const struct product *product, int32_t panel, int32_t panels, int32_t start,
                   int32_t stop)
{
    const struct packed *packed = product->packed;
    if (packed->bias == NULL && product->more == NULL)
        return;
    for (int32_t i = start; i < stop; i++)
        for (int32_t j = panel * WIDTH; j < (panel + panels) * WIDTH; j += LANES) {
            float *out = product->out + i * product->out_stride + j - product->origin;
            vec sum = *(const loose_vec *)out;
            if (packed->bias != NULL)
                sum += *(const loose_vec *)(packed->bias + j);
            if (product->more != NULL)
                sum += *(const loose_vec *)(product->more + i * product->more_stride + j -
                                            product->origin);
            store(out, sum);
        }
}

static void multiply_tiles(const struct product *product, int32_t first, int32_t last,
                           int32_t start, int32_t stop)
{
    const int32_t dtype = product->packed->dtype;
    const int two = stop - start <= HIGH && dtype == BFLOAT16;
    int32_t set = 0;
    for (int32_t panel = first, panels; panel < last; panel += panels) {
        panels = two && panel + 2 <= last ? 2 : 1;
        if (dtype == INT16)
            multiply_bytes(product, panel, start, stop, 1, &set);
        else if (dtype == INT8)
            multiply_bytes(product, panel, start, stop, 0, &set);
        else
            multiply_pairs(product, panel, panels, start, stop, &set);
        finish(product, panel, panels, start, stop);
    }
    _tile_release();
}
