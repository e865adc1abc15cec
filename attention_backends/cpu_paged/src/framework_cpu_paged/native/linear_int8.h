/* Products with weights of eight bits, for the instruction set that the including file has chosen.
 * Included by linear.h. */

/* ROWS_INT8 x VECTORS sums fill the registers. */
#if defined(PAGED_AVX512)
enum { ROWS_INT8 = 12 };
#elif defined(PAGED_AVX2)
enum { ROWS_INT8 = 4 };
#else
enum { ROWS_INT8 = 2 };
#endif

typedef int8_t bytes_vec __attribute__((vector_size(LANES)));
typedef int8_t loose_bytes_vec __attribute__((vector_size(LANES), aligned(1)));

/* A prepared row: its whole numbers, then their scale. */
INLINE int64_t scale_at(const struct packed *packed)
{
    return ((int64_t)packed->depth + 63) / 64 * 64;
}

INLINE int8_t *weights_of(const struct packed *packed, int32_t output)
{
    return (int8_t *)packed->weights + (int64_t)(output / WIDTH) * packed->depth * WIDTH +
           output % WIDTH * 4;
}

/* The scale of an output is its largest weight over 127. */
static void SUFFIX(pack_int8)(struct packed *packed, const float *weights, int64_t stride,
                              int32_t first, int32_t last)
{
    for (int32_t output = first * WIDTH; output < last * WIDTH && output < packed->outputs; output++) {
        const float *row = weights + output * stride;
        int8_t *to = weights_of(packed, output);
        float most = 0;
        int32_t sum = 0;
        for (int32_t k = 0; k < packed->inputs; k++)
            most = fmaxf(most, fabsf(row[k]));
        for (int32_t k = 0; k < packed->inputs; k++) {
            int8_t whole = (int8_t)(most > 0 ? lrintf(row[k] / most * 127) : 0);
            to[(int64_t)(k / 4) * 4 * WIDTH + k % 4] = whole;
            sum += whole;
        }
        packed->scales[output] = most / 127;
        packed->sums[output] = sum;
    }
}

static void SUFFIX(unpack_int8)(const struct packed *packed, int32_t output, float *out)
{
    const int8_t *whole = weights_of(packed, output);
    for (int32_t k = 0; k < packed->inputs; k++)
        out[k] = packed->scales[output] * whole[(int64_t)(k / 4) * 4 * WIDTH + k % 4];
}

/* A row that is not finite gets a scale that is no number, so that its results are none. */
static void SUFFIX(prepare_int8)(const struct packed *packed, const float *x, void *prepared)
{
    const int32_t size = packed->inputs;
    int8_t *whole = prepared;
    vec most = splat(0), odd = splat(0);
    int32_t k = 0;
    for (; k + LANES <= size; k += LANES) {
        vec value = *(const loose_vec *)(x + k);
        vec large = choose(value < splat(0), -value, value);
        most = choose(large > most, large, most);
        odd += value * splat(0); /* no number if it is not finite */
    }
    float top = most_of(most), rest = sum_of(odd);
    for (; k < size; k++) {
        top = fmaxf(top, fabsf(x[k]));
        rest += x[k] * 0;
    }
    const float inverse = top > 0 && rest == 0 ? 127 / top : 0;
    *(float *)(whole + scale_at(packed)) = rest == 0 ? top / 127 : NAN;
    memset(whole, 0, (size_t)packed->depth);
    if (inverse == 0 || inverse > 0x1p126f)
        return;
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to nearest */
    for (k = 0; k + LANES <= size; k += LANES) {
        veci value = (veci)(*(const loose_vec *)(x + k) * inverse + magic) - (veci)magic;
        *(loose_bytes_vec *)(whole + k) = __builtin_convertvector(value, bytes_vec);
    }
    for (; k < size; k++)
        whole[k] = (int8_t)lrintf(x[k] * inverse);
}

INLINE veci add_quads(veci sum, const int8_t *weights, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, 4);
#if defined(PACKED_VNNI)
    __m512i weight = _mm512_loadu_si512(weights), value = _mm512_set1_epi32(four);
    /* Without signs in the first factor; what that adds is taken off at the end. */
    return (veci)_mm512_dpbusd_epi32((__m512i)sum, _mm512_xor_si512(value, _mm512_set1_epi8(-128)),
                                     weight);
#elif defined(PAGED_AVX512) || defined(PAGED_AVX2)
    __m256i part[2];
    memcpy(part, &sum, sizeof part);
    for (int i = 0; i < 2; i++) {
        __m256i weight = _mm256_loadu_si256((const __m256i *)weights + i);
        __m256i value = _mm256_sign_epi8(_mm256_set1_epi32(four), weight);
        /* Two products of at most 127 * 127 fit into sixteen bits. */
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weight), value);
        part[i] = _mm256_add_epi32(part[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    memcpy(&sum, part, sizeof sum);
    return sum;
#else
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++)
            sum[i] += weights[4 * i + j] * x[j];
    return sum;
#endif
}

INLINE void multiply_quads(const struct product *product, int32_t panel, int32_t row, int rows,
                           int panels)
{
    const struct packed *packed = product->packed;
    const int64_t count = packed->depth / 4, size = count * 4 * WIDTH;
    const int8_t *weights = (const int8_t *)packed->weights + panel * size;
    const char *x = product->prepared + row * product->prepared_stride;
    const int32_t column = panel * WIDTH - product->origin;
    veci sums[ROWS_INT8][MOST_PANELS * VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++)
            sums[i][j] = (veci){0};
    for (int64_t k = 0; k < count; k++)
        for (int p = 0; p < panels; p++)
            for (int j = 0; j < VECTORS; j++)
                for (int i = 0; i < rows; i++)
                    sums[i][p * VECTORS + j] =
                        add_quads(sums[i][p * VECTORS + j],
                                  weights + p * size + (k * WIDTH + j * LANES) * 4,
                                  (const int8_t *)x + i * product->prepared_stride + k * 4);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++) {
            const int32_t at = panel * WIDTH + j * LANES;
            veci whole = sums[i][j];
#if defined(PACKED_VNNI)
            veci added;
            memcpy(&added, packed->sums + at, sizeof added);
            whole -= added * 128;
#endif
            const float scale = *(const float *)(x + i * product->prepared_stride + scale_at(packed));
            /* That of the row last: it may be so large that times whole numbers it is infinite. */
            vec sum = __builtin_convertvector(whole, vec) *
                      *(const loose_vec *)(packed->scales + at) * scale;
            if (packed->bias != NULL)
                sum += *(const loose_vec *)(packed->bias + at);
            if (product->more != NULL)
                sum += *(const loose_vec *)(product->more + (row + i) * product->more_stride +
                                            column + j * LANES);
            store(product->out + (row + i) * product->out_stride + column + j * LANES, sum);
        }
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= ROWS_INT8)                                                                        \
            multiply_quads(product, panel, row, n <= ROWS_INT8 ? n : 1, 1);                        \
        break;

INLINE void multiply_int8_as(const struct product *product, int32_t first, int32_t last,
                             int32_t start, int32_t stop)
{
    int32_t panel = first;
    if (stop - start == 1)
        for (; panel + MOST_PANELS <= last; panel += MOST_PANELS)
            multiply_quads(product, panel, start, 1, MOST_PANELS);
    for (; panel < last; panel++) {
        int32_t blocks = (stop - start + ROWS_INT8 - 1) / ROWS_INT8;
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
}

#undef CASE
