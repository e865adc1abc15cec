/* Weights and rows as tiles (AMX) want them.  Included by linear_amx.h.
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

/* Inputs of a tile of pairs, bytes of a tile. */
enum { DEEP = 32, TILE_BYTES = 1024 };
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
