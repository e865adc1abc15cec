/* How packed weights lie: packing, reading them again, and rows as the kernels want them.
 * Included by linear.h. */

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
#elif defined(PAGED_AVX2)
    return in_words(dtype) ? (inputs + GROUP - 1) / GROUP * GROUP : inputs;
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
#elif defined(PAGED_AVX2)
    if (in_words(packed->dtype)) {
        const int64_t bytes = 2 * (int64_t)packed->depth + packed->depth / GROUP * 4;
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
#elif defined(PAGED_AVX2)
    prepare_words(packed, x, prepared);
#else
    (void)packed, (void)x, (void)prepared;
#endif
}

INLINE vec load_weights(const void *data, int64_t at, int32_t dtype)
{
    if (dtype == INT8) {
        const int8_t *bytes = (const int8_t *)data + at;
#if defined(PAGED_AVX2) /* the compiler would go one by one */
        return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
#else
        return __builtin_convertvector(*(const loose_bytes_vec *)bytes, vec);
#endif
    }
    return load(data, at, (enum dtype)dtype);
}

INLINE void put_vector(void *data, int64_t at, vec value, int32_t dtype)
{
    if (dtype == INT8) {
        for (int i = 0; i < SIMD; i++)
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
        _mm_storeu_si128((__m128i *)out, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
#endif
    for (int i = 0; i < SIMD; i++)
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
#if defined(PAGED_AVX2)
    if (in_words(packed->dtype)) {
        for (int32_t output = first * WIDTH; output < last * WIDTH && output < packed->outputs; output++)
            pack_words(packed, weights, stride, output);
        return;
    }
#endif
    for (int32_t panel = first; panel < last; panel++)
        for (int32_t j = 0; j < VECTORS; j++) {
            int32_t output = panel * WIDTH + j * SIMD, count = packed->outputs - output;
            int64_t to = (int64_t)panel * packed->inputs * WIDTH + j * SIMD;
            vec inverse = splat(1);
            for (int i = 0; packed->dtype == INT8 && i < SIMD && i < count; i++)
                inverse[i] = packed->scales[output + i] > 0 ? 1 / packed->scales[output + i] : 0;
            for (int32_t k = 0; k < packed->inputs; k++) {
                vec column = splat(0);
                for (int i = 0; i < SIMD && i < count; i++)
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
#elif defined(PAGED_AVX2)
    if (in_words(packed->dtype)) {
        unpack_words(packed, (int32_t)row, out);
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

/* The weights of input k for the outputs of a panel. */
INLINE const void *weights_at(const struct packed *packed, int32_t panel, int32_t k)
{
    const int64_t at = ((int64_t)panel * packed->inputs + k) * WIDTH;
    return (const char *)packed->weights + at * element_bytes(packed->dtype);
}
