/* Linear maps with packed weights, and what stands between them in a decoder.
 *
 * Weights [outputs, inputs] lie in panels of `width` outputs, as the instruction set has it:
 *   panel [inputs][width]   the weights of one input for all outputs of the panel
 * The last panel is filled up with zeros.  The product of a row is one sum for each output, over
 * its inputs in their order, in float32; nothing else enters it.  So a row's result is equal bit
 * for bit whatever rows come with it, and however they are cut among threads.
 *
 * Weights of eight bits are whole numbers times a scale of their output, and become float32 again
 * where they are multiplied.
 *
 * What lies in tiles, and eight bits with AVX2, lies otherwise: see linear_amx.h and linear_words.h.
 */
#ifndef PACKED_H
#define PACKED_H

#include "paged.h"

/* How weights are kept, besides what paged.h names. */
enum kept {
    INT8 = 3,
    INT16 = 4, /* only in tiles */
};

/* weights: of type `dtype`.  depth: inputs, filled up with zeros to what the kernels take at a time.
 * parts: of a row's inputs, see linear_amx.h.  bias: `panels * width` floats, or NULL.  scales:
 * the same, of INT8 and INT16 weights. */
struct packed {
    int32_t outputs, inputs, panels, width, dtype, depth, parts;
    void *weights;
    struct piece *piece; /* that holds them */
    float *bias, *scales;
};

/* out [rows, outputs] = x [rows, inputs] times weight transposed, plus bias, plus `more`
 * [rows, outputs] unless it is NULL.  Strides count elements.  out is none of the others.
 * origin: the output that comes first in out and more.  prepared: the rows of x as the kernels
 * want them, `prepared_stride` bytes each, where they do not read x itself. */
struct product {
    const struct packed *packed;
    const float *x, *more;
    float *out;
    int64_t x_stride, more_stride, out_stride;
    int32_t rows, origin;
    const char *prepared;
    int64_t prepared_stride;
};

/* What one instruction set offers.  grain: panels that few rows are multiplied with at a time.  depth: see `struct packed`.  pack: lays out the panels from
 * `first` on, up to `last`, of weights with `stride` elements from one output to the next.
 * multiply: panels [first, last) of rows [start, stop).  prepared_bytes: of a row, 0 where x is read
 * as it is; prepare: that row.  unpack: one row of the weights. */
struct kernels {
    const char *name;
    int32_t width, grain;
    int32_t (*depth)(int32_t inputs, int32_t dtype);
    void (*pack)(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                 int32_t last);
    void (*multiply)(const struct product *product, int32_t first, int32_t last, int32_t start,
                     int32_t stop);
    int64_t (*prepared_bytes)(const struct packed *packed);
    void (*prepare)(const struct packed *packed, const float *x, void *prepared);
    void (*unpack)(const struct packed *packed, int64_t row, float *out);
    void (*norm)(const float *x, const float *weight, float offset, float eps, int32_t size,
                 const float *more, float *out);
    void (*rotate)(float *x, const float *cosines, const float *sines, int32_t size);
    void (*gate)(const float *gate_up, int32_t size, int32_t activation, float *out);
};
extern const struct kernels kernels_amx, kernels_avx512, kernels_avx2, kernels_plain;

/* Room for weights [outputs, inputs], which are to be filled in; NULL when memory is short.  bias
 * [outputs] is copied.  lossless: the inputs of a row must count with all their digits. */
struct packed *make_packed(int32_t outputs, int32_t inputs, const float *bias, int32_t dtype,
                           int lossless);
/* The weights of outputs [first, first + count) are copied; both ends are those of panels. */
void fill_packed(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                 int32_t count, int32_t threads);
void free_packed(struct packed *packed);
/* Memory for weights, at the start of a cache line, and the piece to be given back when they are not
 * needed any more; NULL when memory is short. */
void *take_weights(size_t bytes, struct piece **from);
void give_weights_back(struct piece *from, const void *taken, size_t bytes);
int64_t packed_bytes(const struct packed *packed);
/* Bytes of one weight. */
static inline int64_t element_bytes(int32_t dtype)
{
    return dtype == FLOAT32 ? 4 : dtype == INT8 ? 1 : 2;
}
/* Whether bfloat16 holds all of them exactly. */
int fits_bfloat16(const float *values, int64_t count);

/* 0, or -1 when memory is short. */
int run_product(const struct product *product, int32_t threads);

/* Room of the calling thread, from the start of a cache line, kept from call to call, for each of its
 * uses; NULL when memory is short.  What it held before is lost when it grows. */
enum use { BETWEEN_STAGES, PREPARED, LOW_RANK, USES };
void *room_for(enum use use, size_t bytes);

/* A part of an update's second map: columns of what `down` gives, from `from` on, to outputs from
 * `to` on.  What no part holds is zero. */
struct up {
    const struct packed *packed;
    int32_t from, to;
};
struct low_rank {
    const struct packed *down;
    int32_t outputs, count;
    struct up ups[];
};
/* To rows `at` of y are added those of x times an update; at NULL: to the first `rows`. */
struct applied {
    const struct low_rank *update;
    const int64_t *at;
    int32_t rows;
};
/* Of updates of one linear map, all for different rows. */
struct uses {
    struct applied *of;
    int32_t count;
};
/* 0, or -1 when memory is short. */
int run_low_ranks(const struct uses *uses, const float *x, int64_t x_stride, float *y, int64_t y_stride,
                  int32_t threads);
/* Those for rows [start, start + count), as if these were all; to be freed by `free_uses`.  0, or -1
 * when memory is short. */
int uses_within(const struct uses *uses, int32_t start, int32_t count, struct uses *within);
void free_uses(struct uses *uses);

enum activation { SILU = 0, GELU_TANH = 1, GELU = 2, RELU = 3 };

/* A norm: x / sqrt(mean(x^2) + eps) * (offset + weight).  weight NULL: there is none. */
struct norm {
    const float *weight;
    float offset, eps;
};

/* From a layer's input to queries, keys and values: norm, linear, norms of heads, rotation. */
struct entry {
    struct norm norm, query_norm, key_norm;
    const struct packed *linear;
    int32_t heads, kv_heads, head_size;
};

/* From attention to a layer's output: linear, residual, norm, gated linear, linear, residual;
 * with norms of what is added, if they are there. */
struct leave {
    struct norm attention_norm, norm, mlp_norm;
    const struct packed *output, *gate_up, *down;
    int32_t activation;
};

/* Updates of the linear maps of a layer's two halves, or NULL. */
struct entry_uses {
    struct uses linear;
};
struct leave_uses {
    struct uses output, gate_up, down;
};

/* x [rows, inputs of linear]; cosines, sines [rows, head_size / 2];
 * out [rows, heads + 2 kv_heads, head_size].  0, or -1 when memory is short. */
int run_entry(const struct entry *entry, const float *x, int64_t x_stride, const float *cosines,
              const float *sines, float *out, int32_t rows, const struct entry_uses *uses,
              int32_t threads);
/* attended [rows, inputs of output], x and out [rows, outputs of down]. */
int run_leave(const struct leave *leave, const float *attended, int64_t attended_stride,
              const float *x, int64_t x_stride, float *out, int32_t rows,
              const struct leave_uses *uses, int32_t threads);

#endif
