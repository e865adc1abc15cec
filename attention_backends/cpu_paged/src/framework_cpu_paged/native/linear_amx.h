/* Products through tiles (AMX), which multiply bfloat16 and add in float32, or multiply bytes and add
 * in 32 bits.  Included by linear.h.
 *
 * BFLOAT16 weights meet a row whose numbers are cut into parts, each the bfloat16 next to what the
 * parts before it leave: three hold a float32, two are off by at most 2^-18 of it.  Every sum takes
 * its inputs in blocks of 32 and, within one, the parts in one order, whatever rows are beside it.
 * Weights and parts below 2^-126 count as zero there.
 *     weights [depth / 2][width][2];  a prepared row [parts][depth]
 *
 * INT16 weights are whole numbers of two bytes, the high and the low one, times a scale of their
 * output; those of a row have three.  Bytes have signs: 32639 and 8355711 are the largest.  They are
 * multiplied and added exactly; low times last, at most 2^-24 of the largest product, is left out.
 * INT8 weights have only the high byte.
 *     weights [2 columns][depth / 64][bytes][16][16][4];  a prepared row [3][depth], its largest
 */

/* Inputs of a tile of pairs, rows of a tile, rows at a time, bytes of a tile. */
enum { DEEP = 32, HIGH = 16, TALL = 2 * HIGH, TILE_BYTES = 1024 };
/* Bytes of weights that the caches are asked for before they are needed, the nearest and the next. */
enum { NEAR = 8192, FAR = 32768 };
_Static_assert(WIDTH == 32, "a panel is two tiles wide");
static const float LARGEST_OF_TWO = 32639, LARGEST_OF_THREE = 8355711;

INLINE int in_tiles(int32_t dtype)
{
    return dtype == BFLOAT16 || dtype == INT8 || dtype == INT16;
}

INLINE int64_t pair_at(const struct packed *packed, int32_t output, int32_t k)
{
    return (int64_t)(output / WIDTH) * packed->depth * WIDTH + (int64_t)(k / 2) * 2 * WIDTH +
           output % WIDTH * 2 + k % 2;
}

INLINE uint32_t word_of(float value)
{
    uint32_t word;
    memcpy(&word, &value, 4);
    return word;
}

INLINE int8_t *bytes_at(const struct packed *packed, int32_t output, int32_t k)
{
    const int32_t bytes = packed->dtype == INT16 ? 2 : 1;
    const int64_t column = (int64_t)packed->depth * bytes * 16;
    return (int8_t *)packed->weights + output / 16 * column + k / 64 * bytes * TILE_BYTES +
           k % 64 / 4 * 64 + output % 16 * 4 + k % 4;
}

static void pack_bytes(struct packed *packed, const float *row, int32_t output)
{
    float most = 0;
    for (int32_t k = 0; k < packed->inputs; k++)
        most = fmaxf(most, fabsf(row[k]));
    packed->scales[output] = most;
    const float largest = packed->dtype == INT16 ? LARGEST_OF_TWO : LARGEST_OF_ONE;
    for (int32_t k = 0; k < packed->inputs; k++) {
        const int32_t whole = most > 0 ? (int32_t)lrintf(row[k] / most * largest) : 0;
        int8_t *to = bytes_at(packed, output, k);
        if (packed->dtype == INT16) {
            to[TILE_BYTES] = (int8_t)whole;
            to[0] = (int8_t)((whole - to[TILE_BYTES]) / 256);
        } else
            to[0] = (int8_t)whole;
    }
}

static void pack_tiles(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                       int32_t last)
{
    for (int32_t output = first * WIDTH; output < last * WIDTH && output < packed->outputs; output++) {
        const float *row = weights + output * stride;
        if (packed->dtype != BFLOAT16)
            pack_bytes(packed, row, output);
        else
            for (int32_t k = 0; k < packed->inputs; k++)
                ((uint16_t *)packed->weights)[pair_at(packed, output, k)] =
                    (uint16_t)(word_of(row[k]) >> 16);
    }
}

static void unpack_tiles(const struct packed *packed, int32_t output, float *out)
{
    const uint16_t *pairs = packed->weights;
    for (int32_t k = 0; k < packed->inputs; k++) {
        if (packed->dtype == BFLOAT16) {
            const uint32_t word = (uint32_t)pairs[pair_at(packed, output, k)] << 16;
            memcpy(out + k, &word, 4);
            continue;
        }
        const int8_t *whole = bytes_at(packed, output, k);
        out[k] = packed->dtype == INT16
                     ? (float)(whole[0] * 256 + whole[TILE_BYTES]) / LARGEST_OF_TWO
                     : (float)whole[0] / LARGEST_OF_ONE;
        out[k] *= packed->scales[output];
    }
}

/* The first part of two vectors; what it leaves of them stays there.  What is finite has a finite
 * part, though infinity may be nearer; of what is not nothing is left, not no number. */
INLINE __m512i take_part(__m512 *low, __m512 *high)
{
    enum { SMALLER_WITH_SIGN_OF_FIRST = 2 };
    const __m512 top = _mm512_set1_ps(0x1.fep127f), most = _mm512_set1_ps(0x1.fffffep127f);
    const __mmask16 lows = _mm512_cmp_ps_mask(_mm512_abs_ps(*low), most, _CMP_LE_OQ);
    const __mmask16 highs = _mm512_cmp_ps_mask(_mm512_abs_ps(*high), most, _CMP_LE_OQ);
    const __m512i part = (__m512i)_mm512_cvtne2ps_pbh(
        _mm512_mask_range_ps(*high, highs, *high, top, SMALLER_WITH_SIGN_OF_FIRST),
        _mm512_mask_range_ps(*low, lows, *low, top, SMALLER_WITH_SIGN_OF_FIRST));
    const __m512 first = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(part)), 16);
    const __m512 second =
        (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(part, 1)), 16);
    *low = _mm512_maskz_sub_ps(lows, *low, first);
    *high = _mm512_maskz_sub_ps(highs, *high, second);
    return part;
}

static void part_pairs(const struct packed *packed, const float *x, uint16_t *prepared)
{
    for (int32_t k = 0; k < packed->depth; k += DEEP) {
        const int32_t left = packed->inputs - k;
        const __mmask32 mask = left >= DEEP ? 0xffffffffu : (1u << left) - 1;
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, x + k);
        __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + k + 16);
        for (int32_t part = 0; part < packed->parts; part++)
            _mm512_storeu_si512(prepared + part * packed->depth + k, take_part(&low, &high));
    }
}

/* A row that is not finite gets a scale that is no number, so that its results are none. */
static void part_bytes(const struct packed *packed, const float *x, int8_t *prepared)
{
    const int32_t size = packed->inputs, depth = packed->depth;
    __m512 most = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int32_t k = 0; k < size; k += 16) {
        const __mmask16 mask = (__mmask16)(size - k >= 16 ? 0xffff : (1 << (size - k)) - 1);
        const __m512 value = _mm512_maskz_loadu_ps(mask, x + k);
        most = _mm512_max_ps(most, _mm512_abs_ps(value));
        odd = _mm512_add_ps(odd, _mm512_mul_ps(value, _mm512_setzero_ps()));
    }
    const float top = _mm512_reduce_max_ps(most), finite = sum_of((vec)odd) == 0;
    *(float *)(prepared + 3 * depth) = finite ? top : NAN;
    memset(prepared, 0, 3 * (size_t)depth);
    if (!finite || top == 0)
        return;
    /* One over the largest or the smallest floats has few digits, or none. */
    const float nearer = top > 1 ? 0x1p-64f : 0x1p64f, inverse = 1 / (top * nearer);
    for (int32_t k = 0; k < size; k += 16) {
        const __mmask16 mask = (__mmask16)(size - k >= 16 ? 0xffff : (1 << (size - k)) - 1);
        const __m512 near = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + k), _mm512_set1_ps(nearer));
        const __m512 value = _mm512_mul_ps(near, _mm512_set1_ps(inverse));
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(value, _mm512_set1_ps(LARGEST_OF_THREE)));
        for (int32_t byte = 2; byte >= 0; byte--) {
            const __m128i last = _mm512_cvtepi32_epi8(whole);
            _mm_storeu_si128((__m128i *)(prepared + byte * depth + k), last);
            whole = _mm512_srai_epi32(_mm512_sub_epi32(whole, _mm512_cvtepi8_epi32(last)), 8);
        }
    }
}

static void part_row(const struct packed *packed, const float *x, void *prepared)
{
    if (packed->dtype == BFLOAT16)
        part_pairs(packed, x, prepared);
    else
        part_bytes(packed, x, prepared);
}

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
