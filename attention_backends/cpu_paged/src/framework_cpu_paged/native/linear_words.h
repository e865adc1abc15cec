/* Products of weights of eight bits with rows of sixteen.  Included by linear.h, for AVX2.
 *
 * The inputs of a row are taken in groups, each of whole numbers times a scale of its own, so that
 * what is beside an outlier keeps its digits.  Within a group all is multiplied and added exactly,
 * and the sums of groups are added in their order in float32.
 *     weights [panels][depth / 2][WIDTH][2];  a prepared row [depth], then for each group its largest
 */

/* Inputs of a group: 64 * 127 * 32767 fits into 32 bits. */
enum { GROUP = 64 };
static const float LARGEST_OF_WORD = 32767;

INLINE int in_words(int32_t dtype)
{
    return dtype == INT8;
}

INLINE int8_t *byte_at(const struct packed *packed, int32_t output, int32_t k)
{
    return (int8_t *)packed->weights + (int64_t)(output / WIDTH) * packed->depth * WIDTH +
           (int64_t)(k / 2) * 2 * WIDTH + output % WIDTH * 2 + k % 2;
}

static void pack_words(struct packed *packed, const float *weights, int64_t stride, int32_t output)
{
    const float scale = packed->scales[output], *row = weights + output * stride;
    for (int32_t k = 0; k < packed->inputs; k++)
        *byte_at(packed, output, k) = (int8_t)(scale > 0 ? lrintf(row[k] / scale) : 0);
}

static void unpack_words(const struct packed *packed, int32_t output, float *out)
{
    for (int32_t k = 0; k < packed->inputs; k++)
        out[k] = packed->scales[output] * (float)*byte_at(packed, output, k);
}

INLINE float *largest_of(const struct packed *packed, const void *prepared)
{
    return (float *)((char *)prepared + 2 * (int64_t)packed->depth);
}

/* A group that is not finite has a largest that is no number, so that results are none. */
INLINE float words_of(const float *x, int16_t *words)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    vec most = splat(0), odd = splat(0);
    for (int k = 0; k < GROUP; k += SIMD) {
        const __m256 value = _mm256_loadu_ps(x + k);
        most = (vec)_mm256_max_ps((__m256)most, _mm256_andnot_ps(sign, value));
        odd += (vec)_mm256_mul_ps(value, zero);
    }
    const float top = most_of(most);
    const int finite = sum_of(odd) == 0;
    if (!finite || top == 0) {
        memset(words, 0, sizeof *words * GROUP);
        return finite ? 0 : NAN;
    }
    /* One over the largest or the smallest floats has few digits, or none. */
    const float nearer = top > 1 ? 0x1p-64f : 0x1p64f;
    const __m256 near = _mm256_set1_ps(nearer), units = _mm256_set1_ps(LARGEST_OF_WORD / (top * nearer));
    for (int k = 0; k < GROUP; k += 2 * SIMD) {
        __m256 low = _mm256_mul_ps(_mm256_loadu_ps(x + k), near);
        __m256 high = _mm256_mul_ps(_mm256_loadu_ps(x + k + SIMD), near);
        const __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(low, units)),
                                                _mm256_cvtps_epi32(_mm256_mul_ps(high, units)));
        _mm256_storeu_si256((__m256i *)(words + k), _mm256_permute4x64_epi64(both, 0xd8));
    }
    return top;
}

static void prepare_words(const struct packed *packed, const float *x, int16_t *prepared)
{
    float *largest = largest_of(packed, prepared), rest[GROUP] = {0};
    for (int32_t k = 0; k < packed->depth; k += GROUP) {
        const int32_t left = packed->inputs - k;
        if (left < GROUP)
            memcpy(rest, x + k, sizeof *rest * (size_t)left);
        largest[k / GROUP] = words_of(left < GROUP ? rest : x + k, prepared + k);
    }
}

/* The sums of `rows` rows and `panels` panels. */
INLINE void add_words(const struct product *product, int32_t panel, int32_t row, int rows, int panels,
                      vec sums[ROWS][MOST_PANELS * VECTORS])
{
    const struct packed *packed = product->packed;
    const int64_t apart = (int64_t)packed->depth * WIDTH;
    const char *x = product->prepared + row * product->prepared_stride;
    const int8_t *weights = byte_at(packed, panel * WIDTH, 0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++)
            sums[i][j] = splat(0);
    for (int32_t group = 0; group < packed->depth / GROUP; group++) {
        veci whole[ROWS][MOST_PANELS * VECTORS];
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < panels * VECTORS; j++)
                whole[i][j] = (veci){0};
/* A quarter more for one row, whose products are too few to hide the counting. */
#pragma GCC unroll 4
        for (int32_t k = group * GROUP; k < (group + 1) * GROUP; k += 2) {
            veci weight[MOST_PANELS * VECTORS];
            for (int p = 0; p < panels; p++)
                for (int j = 0; j < VECTORS; j++)
                    weight[p * VECTORS + j] = (veci)_mm256_cvtepi8_epi16(_mm_loadu_si128(
                        (const __m128i *)(weights + p * apart + k * WIDTH + j * 2 * SIMD)));
            for (int i = 0; i < rows; i++) {
                int32_t pair;
                memcpy(&pair, x + i * product->prepared_stride + 2 * k, 4);
                for (int j = 0; j < panels * VECTORS; j++)
                    whole[i][j] +=
                        (veci)_mm256_madd_epi16(_mm256_set1_epi32(pair), (__m256i)weight[j]);
            }
        }
        for (int i = 0; i < rows; i++) {
            const float top = largest_of(packed, x + i * product->prepared_stride)[group];
            for (int j = 0; j < panels * VECTORS; j++) {
                /* First the smaller factor: no sum is infinite whose result is not. */
                const vec unit = *(const loose_vec *)(packed->scales + panel * WIDTH + j * SIMD) *
                                 splat(1 / LARGEST_OF_WORD);
                sums[i][j] += (vec)_mm256_cvtepi32_ps((__m256i)whole[i][j]) * unit * top;
            }
        }
    }
}
