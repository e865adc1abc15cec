/* Products with packed weights, and the small functions of rows, for the instruction set that the
 * including file has chosen. */
#include "packed.h"
#include "vectors.h"

/* ROWS x VECTORS sums fill the registers.  Few rows take more panels at a time: a sum waits for
 * the one before it, and only independent ones hide that.  INPUTS: of a row, that are taken at a
 * time, so that their weights stay in the nearest cache. */
#if defined(PAGED_AVX512)
enum { ROWS = 12, VECTORS = 2, INPUTS = 384 };
#else
enum { ROWS = 6, VECTORS = 2, INPUTS = 768 };
#endif
enum { WIDTH = VECTORS * SIMD, MOST_PANELS = 4, LAST_ROWS = 32 };

typedef int8_t loose_bytes_vec __attribute__((vector_size(SIMD), aligned(1)));
static const float LARGEST_OF_ONE = 127;

#if defined(PAGED_AVX2)
#include "linear_words.h"
#else
/* Weights of eight bits become floats where they are multiplied. */
INLINE int in_words(int32_t dtype)
{
    (void)dtype;
    return 0;
}
#endif
#include "linear_layout.h"
#include "linear_multiply.h"
#include "linear_rows.h"

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
