/* Vectors in the compiler's own notation, loads of each element type, exp.
 *
 * A vector has SIMD floats, as many as a register: wider ones the compiler would keep in memory.
 * Included once for each instruction set, which the including file has chosen. */
#ifndef VECTORS_H
#define VECTORS_H

#include "paged.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(PAGED_AVX512)
enum { SIMD = 16 };
#elif defined(PAGED_AVX2)
enum { SIMD = 8 };
#else
enum { SIMD = 4 };
#endif
_Static_assert(LANES % SIMD == 0, "a block of tokens is whole vectors");

typedef float vec __attribute__((vector_size(4 * SIMD)));
typedef int32_t veci __attribute__((vector_size(4 * SIMD)));
typedef float loose_vec __attribute__((vector_size(4 * SIMD), aligned(4)));
typedef uint16_t loose_half_vec __attribute__((vector_size(2 * SIMD), aligned(2)));

INLINE vec splat(float value)
{
    return value - (vec){0};
}

INLINE vec choose(veci mask, vec yes, vec no)
{
    return (vec)((mask & (veci)yes) | (~mask & (veci)no));
}

/* 0, 1, 2 ... */
INLINE veci counted(void)
{
    veci numbers;
    for (int i = 0; i < SIMD; i++)
        numbers[i] = i;
    return numbers;
}

INLINE float half_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff, word;
    float value;
    if (rest >= 0x7c00) /* infinite, or no number */
        word = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    else if (rest >= 0x400)
        word = sign | ((rest << 13) + (112u << 23));
    else { /* below 2^-14: a multiple of 2^-24 */
        value = (float)rest * 0x1p-24f;
        memcpy(&word, &value, 4);
        word |= sign;
    }
    memcpy(&value, &word, 4);
    return value;
}

/* To the nearest, ties to even, as torch does. */
INLINE uint16_t float_to_half(float value)
{
    uint32_t word, sign;
    memcpy(&word, &value, 4);
    sign = word >> 16 & 0x8000;
    word &= 0x7fffffff;
    if (word > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (word >= 0x477ff000) /* rounds beyond the largest */
        return (uint16_t)(sign | 0x7c00);
    if (word < 0x38800000) { /* below 2^-14: adding 0.5 rounds to a multiple of 2^-24 */
        float small;
        memcpy(&small, &word, 4);
        small += 0.5f;
        memcpy(&word, &small, 4);
        return (uint16_t)(sign | (word - 0x3f000000));
    }
    return (uint16_t)(sign | (word - (112u << 23) + 0xfff + (word >> 13 & 1)) >> 13);
}

INLINE float bfloat_to_float(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

INLINE uint16_t float_to_bfloat(float value)
{
    uint32_t word;
    memcpy(&word, &value, 4);
    if ((word & 0x7fffffff) > 0x7f800000)
        return 0x7fc0;
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

INLINE float get(const void *data, int64_t at, enum dtype dtype)
{
    if (dtype == FLOAT32)
        return ((const float *)data)[at];
    uint16_t bits = ((const uint16_t *)data)[at];
    return dtype == BFLOAT16 ? bfloat_to_float(bits) : half_to_float(bits);
}

INLINE void put(void *data, int64_t at, float value, enum dtype dtype)
{
    if (dtype == FLOAT32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = dtype == BFLOAT16 ? float_to_bfloat(value) : float_to_half(value);
}

INLINE vec load_half(const void *data)
{
#if defined(PAGED_AVX512)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(data));
#elif defined(PAGED_AVX2)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(data));
#else
    vec both;
    for (int i = 0; i < SIMD; i++)
        both[i] = half_to_float(((const uint16_t *)data)[i]);
    return both;
#endif
}

INLINE vec load(const void *data, int64_t at, enum dtype dtype)
{
    if (dtype == FLOAT32)
        return *(const loose_vec *)((const float *)data + at);
    const uint16_t *bits = (const uint16_t *)data + at;
    if (dtype == FLOAT16)
        return load_half(bits);
#if defined(PAGED_AVX2) /* the compiler takes more steps */
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)bits)), 16);
#else
    return (vec)(__builtin_convertvector(*(const loose_half_vec *)bits, veci) << 16);
#endif
}

INLINE void store(float *data, vec value)
{
    *(loose_vec *)data = value;
}

/* e^x for x <= 88 to 1e-7 of it; 0 below -87, and for -infinity; x for no number.  Method: x = n ln 2 + r with
 * |r| <= ln 2 / 2; a polynomial of e^r (the minimax one of Cephes' expf); n into the exponent. */
INLINE vec exponential(vec x)
{
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it leaves the integer in the low bits */
    veci low = x < splat(-87.0f);
    vec shifted = choose(low, splat(0), x) * splat(1.44269504088896341f) + magic;
    vec n = shifted - magic, r = choose(low, splat(0), x) - n * splat(0.693359375f);
    r = r - n * splat(-2.12194440e-4f);
    vec y = splat(1.9875691500e-4f);
    y = y * r + splat(1.3981999507e-3f);
    y = y * r + splat(8.3334519073e-3f);
    y = y * r + splat(4.1665795894e-2f);
    y = y * r + splat(1.6666665459e-1f);
    y = y * r + splat(5.0000001201e-1f);
    y = y * (r * r) + r + splat(1.0f);
    veci power = ((veci)shifted - (veci)magic) << 23;
    y = choose(low, splat(0), (vec)((veci)y + power));
    return choose(x == x, y, x);
}

/* tanh x = 1 - 2 / (e^2|x| + 1), with the sign of x; small x by its series, where that cancels. */
INLINE vec hyperbolic_tangent(vec x)
{
    vec size = choose(x < splat(0), -x, x);
    vec capped = choose(size > splat(20.0f), splat(20.0f), size);
    vec large = splat(1.0f) - splat(2.0f) / (exponential(capped * splat(2.0f)) + splat(1.0f));
    vec square = size * size;
    vec series = splat(2.0f / 15) - square * splat(17.0f / 315);
    series = size - size * square * (splat(1.0f / 3) - square * series);
    vec both = choose(size < splat(0.1f), series, large);
    return choose(x < splat(0), -both, choose(x == x, both, x));
}

INLINE float sum_of(vec x)
{
    float sum = 0;
    for (int width = SIMD / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            x[i] = x[i] + x[i + width];
    sum = x[0];
    return sum;
}

INLINE float most_of(vec x)
{
    float most = x[0];
    for (int i = 1; i < SIMD; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

#endif
