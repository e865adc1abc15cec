/* Products with packed weights.  Included by linear.h. */

/* A block of a product: weights, of type `dtype`, of inputs [first, last) of panels from `panel` on,
 * each `apart` numbers after the one before, for rows from `row` on. */
struct block {
    const void *weights;
    int64_t apart;
    int32_t panel, row, first, last;
};

INLINE vec weights_of(const struct packed *packed, const struct block *block, int32_t k, int panel,
                      int j, int32_t dtype)
{
    const int64_t at = panel * block->apart + (int64_t)(k - block->first) * WIDTH + j * SIMD;
    vec weight = load_weights(block->weights, at, dtype);
    if (dtype == INT8) /* here, as times whole numbers sums might be infinite */
        weight *= *(const loose_vec *)(packed->scales + (block->panel + panel) * WIDTH + j * SIMD);
    return weight;
}

/* Sums of inputs [first, last) into sums. */
INLINE void add_floats(const struct product *product, const struct block *block, int32_t dtype,
                       int rows, int panels, vec sums[ROWS][MOST_PANELS * VECTORS])
{
    const float *x = product->x + block->row * product->x_stride;
    for (int32_t k = block->first; k < block->last; k++) {
        vec weight[MOST_PANELS * VECTORS];
        for (int j = 0; j < panels * VECTORS; j++) {
            weight[j] = weights_of(product->packed, block, k, j / VECTORS, j % VECTORS, dtype);
            if (rows == 1) /* at once, as sums leave no registers for all weights */
                sums[0][j] += x[k] * weight[j];
        }
        for (int i = 0; i < rows && rows > 1; i++)
            for (int j = 0; j < panels * VECTORS; j++)
                sums[i][j] += x[i * product->x_stride + k] * weight[j];
    }
}

/* The sums of a block's `rows` rows and `panels` panels, into what out holds unless first is 0. */
INLINE void add_inputs(const struct product *product, const struct block *block, int32_t dtype,
                       int rows, int panels)
{
    const struct packed *packed = product->packed;
    const int32_t column = block->panel * WIDTH - product->origin;
    float *out = product->out + block->row * product->out_stride + column;
    vec sums[ROWS][MOST_PANELS * VECTORS];
    for (int i = 0; i < rows && panels == 1; i++) /* it comes while all is multiplied */
        __builtin_prefetch(out + i * product->out_stride, 1);
#if defined(PAGED_AVX2)
    if (in_words(dtype))
        add_words(product, block->panel, block->row, rows, panels, sums);
    else
#endif
    {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < panels * VECTORS; j++)
                sums[i][j] = block->first == 0
                                 ? splat(0)
                                 : *(const loose_vec *)(out + i * product->out_stride + j * SIMD);
        add_floats(product, block, dtype, rows, panels, sums);
    }
    const int ends = block->last == packed->inputs;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels * VECTORS; j++) {
            vec sum = sums[i][j];
            if (ends && packed->bias != NULL)
                sum += *(const loose_vec *)(packed->bias + block->panel * WIDTH + j * SIMD);
            if (ends && product->more != NULL)
                sum += *(const loose_vec *)(product->more + (block->row + i) * product->more_stride +
                                            column + j * SIMD);
            store(out + i * product->out_stride + j * SIMD, sum);
        }
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= ROWS)                                                                             \
            add_inputs(product, &block, dtype, n <= ROWS ? n : 1, 1);                              \
        break;

/* Rows from block.row up to `stop`, in blocks of nearly one size. */
INLINE void add_rows(const struct product *product, struct block block, int32_t stop, int32_t dtype)
{
    int32_t blocks = (stop - block.row + ROWS - 1) / ROWS;
    for (; block.row < stop; blocks--) {
        int32_t rows = (stop - block.row + blocks - 1) / blocks;
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
        block.row += rows;
    }
}

#undef CASE

/* Panels of few rows: all inputs at once, as each weight is read once. */
INLINE void multiply_few(const struct product *product, int32_t first, int32_t last, int32_t row,
                         int32_t dtype, int rows, int panels)
{
    const struct packed *packed = product->packed;
    struct block block = {.apart = (int64_t)packed->inputs * WIDTH, .panel = first, .row = row,
                          .last = packed->inputs};
    for (; block.panel < last; block.panel += panels) {
        block.weights = weights_at(packed, block.panel, 0);
        if (block.panel + panels > last)
            break;
        add_inputs(product, &block, dtype, rows, panels);
    }
    for (; block.panel < last; block.panel++) {
        block.weights = weights_at(packed, block.panel, 0);
        add_inputs(product, &block, dtype, rows, 1);
    }
}

/* The weights of a block as float32. */
INLINE void decode(const struct packed *packed, const struct block *block, int32_t dtype, float *to)
{
    for (int32_t k = block->first; k < block->last; k++)
        for (int j = 0; j < VECTORS; j++)
            store(to + (k - block->first) * WIDTH + j * SIMD, weights_of(packed, block, k, 0, j, dtype));
}

/* What is compiled for each type of weights; one, two: for so many rows. */
struct of_type {
    void (*one)(const struct product *product, int32_t first, int32_t last, int32_t row);
    void (*two)(const struct product *product, int32_t first, int32_t last, int32_t row);
    void (*rows)(const struct product *product, struct block block, int32_t stop);
    void (*decode)(const struct packed *packed, const struct block *block, float *to);
};

/* Functions of their own: within a larger one the compiler keeps strides and ends in memory. */
#define OF_TYPE(dtype, name)                                                                       \
    static void SUFFIX(one_##name)(const struct product *product, int32_t first, int32_t last,     \
                                   int32_t row)                                                    \
    {                                                                                              \
        multiply_few(product, first, last, row, dtype, 1, MOST_PANELS);                            \
    }                                                                                              \
    static void SUFFIX(two_##name)(const struct product *product, int32_t first, int32_t last,     \
                                   int32_t row)                                                    \
    {                                                                                              \
        multiply_few(product, first, last, row, dtype, 2, 2);                                      \
    }                                                                                              \
    static void SUFFIX(rows_##name)(const struct product *product, struct block block, int32_t stop) \
    {                                                                                              \
        add_rows(product, block, stop, dtype);                                                     \
    }                                                                                              \
    static void SUFFIX(decode_##name)(const struct packed *packed, const struct block *block,      \
                                      float *to)                                                   \
    {                                                                                              \
        decode(packed, block, dtype, to);                                                          \
    }
#define FUNCTIONS(name)                                                                            \
    {                                                                                              \
        SUFFIX(one_##name), SUFFIX(two_##name), SUFFIX(rows_##name), SUFFIX(decode_##name)         \
    }
OF_TYPE(FLOAT32, floats)
OF_TYPE(BFLOAT16, bfloats)
OF_TYPE(FLOAT16, halves)
OF_TYPE(INT8, bytes)
static const struct of_type SUFFIX(types)[] = {[FLOAT32] = FUNCTIONS(floats),
                                               [BFLOAT16] = FUNCTIONS(bfloats),
                                               [FLOAT16] = FUNCTIONS(halves),
                                               [INT8] = FUNCTIONS(bytes)};
#undef OF_TYPE
#undef FUNCTIONS

/* Whether weights become float32 once for all of `rows` rows.  With AVX2 this pays late or never:
 * beside sums a register is filled with fp16 in no time, and with bfloat16 in little. */
INLINE int pays_decoding(int32_t dtype, int32_t rows)
{
#if defined(PAGED_AVX512)
    (void)dtype, (void)rows;
    return 0;
#elif defined(PAGED_AVX2)
    return dtype == BFLOAT16 && rows > 8 * ROWS;
#else
    return dtype != FLOAT32 && rows > ROWS;
#endif
}

static void SUFFIX(multiply_many)(const struct product *product, int32_t first, int32_t last,
                                  int32_t start, int32_t stop)
{
    const struct packed *packed = product->packed;
    const int32_t dtype = packed->dtype, decodes = pays_decoding(dtype, stop - start);
    const struct of_type *type = &SUFFIX(types)[decodes ? FLOAT32 : dtype];
    const int32_t blocks = in_words(dtype) ? 1 : (packed->inputs + INPUTS - 1) / INPUTS;
    const int32_t size = (packed->inputs + blocks - 1) / blocks;
    _Alignas(64) float decoded[INPUTS * WIDTH];
    for (int32_t panel = first; panel < last; panel++)
        for (int32_t k = 0; k < packed->inputs; k += size) {
            struct block block = {.weights = weights_at(packed, panel, k), .panel = panel,
                                  .row = start, .first = k, .last = k + size};
            if (block.last > packed->inputs)
                block.last = packed->inputs;
            if (decodes) {
                SUFFIX(types)[dtype].decode(packed, &block, decoded);
                block.weights = decoded;
            }
            type->rows(product, block, stop);
        }
}

static void SUFFIX(multiply_whole)(const struct product *product, int32_t first, int32_t last,
                                   int32_t start, int32_t stop)
{
    const struct of_type *type = &SUFFIX(types)[product->packed->dtype];
#if defined(PACKED_AMX)
    if (in_tiles(product->packed->dtype)) {
        multiply_tiles(product, first, last, start, stop);
        return;
    }
#endif
    if (stop - start == 1)
        type->one(product, first, last, start);
    else if (stop - start == 2)
        type->two(product, first, last, start);
    else
        SUFFIX(multiply_many)(product, first, last, start, stop);
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
