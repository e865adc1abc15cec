/* Products with packed weights, and the small functions of rows, for the instruction set that the
 * including file has chosen. */
#include "packed.h"
#include "vectors.h"

/* ROWS x VECTORS sums fill the registers.  Few rows take more panels at a time: a sum waits for
 * the one before it, and only independent ones hide that. */
#if defined(PAGED_AVX512)
enum { ROWS = 12, VECTORS = 2 };
#elif defined(PAGED_AVX2)
enum { ROWS = 6, VECTORS = 1 };
#else
enum { ROWS = 4, VECTORS = 1 };
#endif
enum { WIDTH = VECTORS * LANES, MOST_PANELS = 4, INPUTS = 384, LAST_ROWS = 32 };

typedef int8_t bytes_vec __attribute__((vector_size(LANES)));
typedef int8_t loose_bytes_vec __attribute__((vector_size(LANES), aligned(1)));
static const float LARGEST_OF_ONE = 127;

#if defined(PACKED_AMX)
#include "linear_amx.h"
#else
/* Nothing lies in tiles, then. */
INLINE int in_tiles(int32_t dtype)
{
    (void)dtype;
    return 0;
}
#endif

static int32_t SUFFIX(depth)(int32_t inputs, int32_t dtype)
{
#if defined(PACKED_AMX)
    const int32_t least = !in_tiles(dtype) ? 1 : dtype == BFLOAT16 ? 32 : 64;
    return (inputs + least - 1) / least * least;
#else
    (void)dtype;
    return inputs;
#endif
}

/* Rows lie an odd number of cache lines apart, lest those of a block all fall into one set. */
static int64_t SUFFIX(prepared_bytes)(const struct packed *packed)
{
#if defined(PACKED_AMX)
    if (in_tiles(packed->dtype)) {
        const int64_t depth = packed->depth;
        const int64_t bytes = packed->dtype == BFLOAT16 ? packed->parts * depth * 2 : 3 * depth + 4;
        return ((bytes + 63) / 64 | 1) * 64;
    }
#endif
    (void)packed;
    return 0;
}

static void SUFFIX(prepare)(const struct packed *packed, const float *x, void *prepared)
{
#if defined(PACKED_AMX)
    part_row(packed, x, prepared);
#else
    (void)packed, (void)x, (void)prepared;
#endif
}

INLINE vec load_weights(const void *data, int64_t at, int32_t dtype)
{
    if (dtype == INT8)
        return __builtin_convertvector(*(const loose_bytes_vec *)((const int8_t *)data + at), vec);
    return load(data, at, (enum dtype)dtype);
}

INLINE void put_vector(void *data, int64_t at, vec value, int32_t dtype)
{
    if (dtype == INT8) {
        for (int i = 0; i < LANES; i++)
            ((int8_t *)data)[at + i] = (int8_t)lrintf(value[i]);
        return;
    }
    if (dtype == FLOAT32) {
        store((float *)data + at, value);
        return;
    }
    uint16_t *out = (uint16_t *)data + at;
#if defined(PAGED_AVX512)
    if (dtype == FLOAT16) {
        _mm256_storeu_si256((__m256i *)out,
                            _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
#elif defined(PAGED_AVX2)
    if (dtype == FLOAT16) {
        __m256 half;
        for (int i = 0; i < 2; i++) {
            memcpy(&half, (const char *)&value + 32 * i, 32);
            _mm_storeu_si128((__m128i *)out + i,
                             _mm256_cvtps_ph(half, _MM_FROUND_TO_NEAREST_INT));
        }
        return;
    }
#endif
    for (int i = 0; i < LANES; i++)
        put(out, i, value[i], (enum dtype)dtype);
}

/* Of an output's weights, the largest; those of INT8 are counted in 127ths of it. */
static void SUFFIX(scale)(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                          int32_t last)
{
    for (int32_t output = first * WIDTH; output < last * WIDTH && output < packed->outputs; output++) {
        float most = 0;
        for (int32_t k = 0; k < packed->inputs; k++)
            most = fmaxf(most, fabsf(weights[output * stride + k]));
        packed->scales[output] = most / LARGEST_OF_ONE;
    }
}

static void SUFFIX(pack)(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                         int32_t last)
{
#if defined(PACKED_AMX)
    if (in_tiles(packed->dtype)) {
        pack_tiles(packed, weights, stride, first, last);
        return;
    }
#endif
    if (packed->dtype == INT8)
        SUFFIX(scale)(packed, weights, stride, first, last);
    for (int32_t panel = first; panel < last; panel++)
        for (int32_t j = 0; j < VECTORS; j++) {
            int32_t output = panel * WIDTH + j * LANES, count = packed->outputs - output;
            int64_t to = (int64_t)panel * packed->inputs * WIDTH + j * LANES;
            vec inverse = splat(1);
            for (int i = 0; packed->dtype == INT8 && i < LANES && i < count; i++)
                inverse[i] = packed->scales[output + i] > 0 ? 1 / packed->scales[output + i] : 0;
            for (int32_t k = 0; k < packed->inputs; k++) {
                vec column = splat(0);
                for (int i = 0; i < LANES && i < count; i++)
                    column[i] = weights[(output + i) * stride + k];
                put_vector(packed->weights, to + (int64_t)k * WIDTH, column * inverse, packed->dtype);
            }
        }
}

static void SUFFIX(unpack)(const struct packed *packed, int64_t row, float *out)
{
#if defined(PACKED_AMX)
    if (in_tiles(packed->dtype)) {
        unpack_tiles(packed, (int32_t)row, out);
        return;
    }
#endif
    const int64_t from = row / WIDTH * packed->inputs * WIDTH + row % WIDTH;
    for (int32_t k = 0; k < packed->inputs; k++) {
        const int64_t at = from + (int64_t)k * WIDTH;
        out[k] = packed->dtype == INT8
                     ? packed->scales[row] * (float)((const int8_t *)packed->weights)[at]
                     : get(packed->weights, at, (enum dtype)packed->dtype);
    }
}

/* Sums of inputs [first, last) of `rows` rows and `panels` panels, into what out holds unless
 * first is 0. */
INLINE void add_inputs(const struct product *product, int32_t panel, int32_t row, int32_t first,
                       int32_t last, int32_t dtype, int rows, int panels)
{
    const struct packed *packed = product->packed;
    const int64_t size = (int64_t)packed->inputs * WIDTH;
    const float *x = product->x + row * product->x_stride;
    const int32_t column = panel * WIDTH - product->origin;
    float *out = product->out + row * product->out_stride + column;
    vec sums[ROWS][MOST_PANELS * VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++)
            sums[i][j] = first == 0 ? splat(0)
                                    : *(const loose_vec *)(out + i * product->out_stride + j * LANES);
    for (int32_t k = first; k < last; k++) {
        vec weight[MOST_PANELS * VECTORS];
        for (int p = 0; p < panels; p++)
            for (int j = 0; j < VECTORS; j++) {
                weight[p * VECTORS + j] = load_weights(
                    packed->weights, (panel + p) * size + (int64_t)k * WIDTH + j * LANES, dtype);
                if (dtype == INT8) /* here, as times whole numbers sums might be infinite */
                    weight[p * VECTORS + j] *=
                        *(const loose_vec *)(packed->scales + (panel + p) * WIDTH + j * LANES);
            }
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < panels * VECTORS; j++)
                sums[i][j] += x[i * product->x_stride + k] * weight[j];
    }
    const int ends = last == packed->inputs;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++) {
            vec sum = sums[i][j];
            if (ends && packed->bias != NULL)
                sum += *(const loose_vec *)(packed->bias + panel * WIDTH + j * LANES);
            if (ends && product->more != NULL)
                sum += *(const loose_vec *)(product->more + (row + i) * product->more_stride +
                                            column + j * LANES);
            store(out + i * product->out_stride + j * LANES, sum);
        }
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= ROWS)                                                                             \
            add_inputs(product, panel, row, first, last, dtype, n <= ROWS ? n : 1, 1);             \
        break;

/* Rows [start, stop) in blocks of nearly one size. */
INLINE void add_rows(const struct product *product, int32_t panel, int32_t first, int32_t last,
                     int32_t start, int32_t stop, int32_t dtype)
{
    int32_t blocks = (stop - start + ROWS - 1) / ROWS;
    for (int32_t row = start; row < stop; blocks--) {
        int32_t rows = (stop - row + blocks - 1) / blocks;
        switch (rows) {
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
            CASE(7)
            CASE(8)
            CASE(9)
            CASE(10)
            CASE(11)
            CASE(12)
        }
        row += rows;
    }
}

#undef CASE

INLINE void multiply_few(const struct product *product, int32_t first, int32_t last, int32_t row,
                         int32_t dtype, int rows, int panels)
{
    for (; first + panels <= last; first += panels)
        add_inputs(product, first, row, 0, product->packed->inputs, dtype, rows, panels);
    for (; first < last; first++)
        add_inputs(product, first, row, 0, product->packed->inputs, dtype, rows, 1);
}

INLINE void multiply_as(const struct product *product, int32_t first, int32_t last, int32_t start,
                        int32_t stop, int32_t dtype)
{
    if (stop - start == 1)
        multiply_few(product, first, last, start, dtype, 1, MOST_PANELS);
    else if (stop - start == 2)
        multiply_few(product, first, last, start, dtype, 2, 2);
    else
        for (int32_t panel = first; panel < last; panel++)
            for (int32_t k = 0; k < product->packed->inputs; k += INPUTS) {
                int32_t end = k + INPUTS;
                if (end > product->packed->inputs)
                    end = product->packed->inputs;
                add_rows(product, panel, k, end, start, stop, dtype);
            }
}

static void SUFFIX(multiply_whole)(const struct product *product, int32_t first, int32_t last,
                                   int32_t start, int32_t stop)
{
#if defined(PACKED_AMX)
    if (in_tiles(product->packed->dtype)) {
        multiply_tiles(product, first, last, start, stop);
        return;
    }
#endif
    switch (product->packed->dtype) {
    case INT8:
        multiply_as(product, first, last, start, stop, INT8);
        break;
    case FLOAT32:
        multiply_as(product, first, last, start, stop, FLOAT32);
        break;
    case BFLOAT16:
        multiply_as(product, first, last, start, stop, BFLOAT16);
        break;
    default:
        multiply_as(product, first, last, start, stop, FLOAT16);
    }
}

/* The last panel, which holds outputs that are none, by way of a buffer. */
static void SUFFIX(multiply_last)(const struct product *product, int32_t start, int32_t stop)
{
    const struct packed *packed = product->packed;
    const int32_t panel = packed->panels - 1, output = panel * WIDTH;
    const size_t bytes = sizeof(float) * (size_t)(packed->outputs - output);
    float more[LAST_ROWS][WIDTH], out[LAST_ROWS][WIDTH];
    struct product part = *product;
    for (int32_t row = start; row < stop; row += LAST_ROWS) {
        int32_t rows = stop - row < LAST_ROWS ? stop - row : LAST_ROWS;
        part.x = product->x + row * product->x_stride;
        part.prepared = product->prepared + row * product->prepared_stride;
        part.origin = output;
        part.out = &out[0][0];
        part.out_stride = WIDTH;
        if (product->more != NULL) {
            memset(more, 0, sizeof more);
            for (int32_t i = 0; i < rows; i++)
                memcpy(more[i], product->more + (row + i) * product->more_stride + output, bytes);
            part.more = &more[0][0];
            part.more_stride = WIDTH;
        }
        SUFFIX(multiply_whole)(&part, panel, panel + 1, 0, rows);
        for (int32_t i = 0; i < rows; i++)
            memcpy(product->out + (row + i) * product->out_stride + output, out[i], bytes);
    }
}

static void SUFFIX(multiply)(const struct product *product, int32_t first, int32_t last,
                             int32_t start, int32_t stop)
{
    const struct packed *packed = product->packed;
    const int partial = last == packed->panels && packed->outputs % WIDTH != 0;
    SUFFIX(multiply_whole)(product, first, last - partial, start, stop);
    if (partial)
        SUFFIX(multiply_last)(product, start, stop);
}

static void SUFFIX(norm)(const float *x, const float *weight, float offset, float eps, int32_t size,
                         const float *more, float *out)
{
    vec squares = splat(0);
    float rest = 0;
    int32_t k = 0;
    for (; k + LANES <= size; k += LANES) {
        vec value = *(const loose_vec *)(x + k);
        squares += value * value;
    }
    for (; k < size; k++)
        rest += x[k] * x[k];
    const float scale = 1 / sqrtf((sum_of(squares) + rest) / (float)size + eps);
    for (k = 0; k + LANES <= size; k += LANES) {
        vec value = *(const loose_vec *)(x + k) * scale * (*(const loose_vec *)(weight + k) + offset);
        store(out + k, more == NULL ? value : value + *(const loose_vec *)(more + k));
    }
    for (; k < size; k++)
        out[k] = x[k] * scale * (weight[k] + offset) + (more == NULL ? 0 : more[k]);
}

/* Pairs (i, i + size / 2) by the angles of cosines and sines [size / 2]. */
static void SUFFIX(rotate)(float *x, const float *cosines, const float *sines, int32_t size)
{
    const int32_t half = size / 2;
    int32_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        vec first = *(const loose_vec *)(x + i), second = *(const loose_vec *)(x + half + i);
        vec cosine = *(const loose_vec *)(cosines + i), sine = *(const loose_vec *)(sines + i);
        store(x + i, first * cosine - second * sine);
        store(x + half + i, second * cosine + first * sine);
    }
    for (; i < half; i++) {
        float first = x[i], second = x[half + i];
        x[i] = first * cosines[i] - second * sines[i];
        x[half + i] = second * cosines[i] + first * sines[i];
    }
}

INLINE vec activated(vec x, enum activation activation)
{
    switch (activation) {
    case SILU: { /* e^88 is near the largest float, and x / e^88 nothing beside it */
        vec most = choose(x < splat(-88.0f), splat(88.0f), -x);
        return x / (splat(1.0f) + exponential(choose(x < splat(-88.0f), most, -x)));
    }
    case GELU_TANH: {
        vec inner = splat(0.7978845608028654f) * (x + splat(0.044715f) * x * x * x);
        return splat(0.5f) * x * (splat(1.0f) + hyperbolic_tangent(inner));
    }
    case GELU:
        for (int i = 0; i < LANES; i++)
            x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
        return x;
    default:
        return choose((veci)(x <= splat(0)), splat(0), x);
    }
}

INLINE void gate_as(const float *gate_up, int32_t size, float *out, enum activation activation)
{
    int32_t i = 0;
    for (; i + LANES <= size; i += LANES)
        store(out + i, activated(*(const loose_vec *)(gate_up + i), activation) *
                           *(const loose_vec *)(gate_up + size + i));
    if (i < size) {
        vec rest = splat(0);
        memcpy(&rest, gate_up + i, sizeof(float) * (size_t)(size - i));
        rest = activated(rest, activation);
        for (int32_t k = i; k < size; k++)
            out[k] = rest[k - i] * gate_up[size + k];
    }
}

static void SUFFIX(gate)(const float *gate_up, int32_t size, int32_t activation, float *out)
{
    switch (activation) {
    case SILU:
        gate_as(gate_up, size, out, SILU);
        break;
    case GELU_TANH:
        gate_as(gate_up, size, out, GELU_TANH);
        break;
    case GELU:
        gate_as(gate_up, size, out, GELU);
        break;
    default:
        gate_as(gate_up, size, out, RELU);
    }
}

#define STRING(name) #name
#define NAME_OF(name) STRING(name)
const struct kernels SUFFIX(kernels) = {
    .name = NAME_OF(SUFFIX(kernels)),
    .width = WIDTH,
#if defined(PACKED_AMX)
    .grain = 1,
#else
    .grain = MOST_PANELS,
#endif
    .depth = SUFFIX(depth),
    .pack = SUFFIX(pack),
    .multiply = SUFFIX(multiply),
    .prepared_bytes = SUFFIX(prepared_bytes),
    .prepare = SUFFIX(prepare),
    .unpack = SUFFIX(unpack),
    .norm = SUFFIX(norm),
    .rotate = SUFFIX(rotate),
    .gate = SUFFIX(gate),
};
