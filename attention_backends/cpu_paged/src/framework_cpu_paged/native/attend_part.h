/* The softmax of one part of a row's tokens, and its weighted sum of V, for the instruction set that
 * the including file has chosen.
 *
 * Rows of a tile are its queries times the heads that share a KV head: row = query * group + head.
 */
#ifndef ATTEND_PART_H
#define ATTEND_PART_H

#include "vectors.h"

/* Rows and vectors whose sums fill the registers.  VECTORS_OF_BLOCK: of LANES tokens. */
enum { VECTORS_OF_BLOCK = LANES / SIMD, AHEAD = 1 };
#if defined(PAGED_AVX512)
enum { SCORE_ROWS = 8, VALUE_ROWS = 4, VALUE_VECTORS = 4 };
#elif defined(PAGED_AVX2)
enum { SCORE_ROWS = 6, VALUE_ROWS = 3, VALUE_VECTORS = 4 };
#else
enum { SCORE_ROWS = 3, VALUE_ROWS = 3, VALUE_VECTORS = 4 };
#endif

/* What one thread works with. */
struct space {
    float *queries;  /* [TILE][head_size], times scale */
    float *scores;   /* [TILE][PART], then weights */
    float *part;     /* [TILE][head_size_v], of one part */
    float *sum;      /* [TILE][head_size_v], of all parts so far */
    float most[TILE], total[TILE], part_most[TILE], part_total[TILE];
};

/* A part of a row's tokens, for a tile: tokens [start, stop), of which the tile sees
 * [0, sinks) and [low, stop). */
struct span {
    int32_t start, stop, low, sinks;
};

struct tile {
    const struct layer *layer;
    const struct task *task;
    const int32_t *table;
    int32_t head, group, rows; /* head: the KV head */
    int32_t causal, length;
};

INLINE int32_t lowest(const struct layer *layer, int32_t position)
{
    int32_t low = 0;
    if (layer->window > 0 && position - layer->window + 1 > low)
        low = position - layer->window + 1;
    if (layer->chunk > 0 && position / layer->chunk * layer->chunk > low)
        low = position / layer->chunk * layer->chunk;
    return low;
}

INLINE int hidden_block(const struct span *span, int32_t start)
{
    return start + LANES <= span->low && start >= span->sinks;
}

/* Where K (or, with `values`, V) of a block of LANES tokens lies, as an index into elements. */
INLINE int64_t place(const struct tile *tile, int32_t start, int values)
{
    const struct layer *layer = tile->layer;
    int32_t page = start / layer->page_tokens, offset = start % layer->page_tokens;
    int64_t per_head = (int64_t)layer->page_tokens * (layer->head_size + layer->head_size_v);
    int64_t at = tile->table[page] * layer->page_stride + tile->head * per_head;
    if (values)
        return at + (int64_t)layer->page_tokens * layer->head_size + (int64_t)offset * layer->head_size_v;
    return at + (int64_t)offset * layer->head_size;
}

/* A block of K or V that is read after this one, which the caches are asked for meanwhile: pages lie
 * too far from one another for the processor to guess it.  Any address will do. */
INLINE const char *ahead(const struct tile *tile, const struct span *span, int32_t start, int values)
{
    const int32_t next = start + AHEAD * LANES;
    const int64_t bytes = tile->layer->cache_dtype == FLOAT32 ? 4 : 2;
    return tile->layer->cache + bytes * place(tile, next < span->stop ? next : start, values);
}

INLINE void score(const float *queries, const char *keys, int64_t at, float *scores,
                  int32_t head_size, enum dtype dtype, int rows, const char *next)
{
    const int bytes = dtype == FLOAT32 ? 4 : 2;
    vec sums[SCORE_ROWS][VECTORS_OF_BLOCK];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS_OF_BLOCK; j++)
            sums[i][j] = splat(0);
    for (int32_t d = 0; d < head_size; d++) {
        __builtin_prefetch(next + (int64_t)d * LANES * bytes);
        vec key[VECTORS_OF_BLOCK];
        for (int j = 0; j < VECTORS_OF_BLOCK; j++)
            key[j] = load(keys, at + (int64_t)d * LANES + j * SIMD, dtype);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < VECTORS_OF_BLOCK; j++)
                sums[i][j] += queries[i * head_size + d] * key[j];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS_OF_BLOCK; j++)
            store(scores + i * PART + j * SIMD, sums[i][j]);
}

INLINE void score_block(const struct tile *tile, struct space *space, int64_t at, float *scores,
                        enum dtype dtype, const char *next)
{
    const int32_t size = tile->layer->head_size;
    int32_t row = 0;
    for (; row + SCORE_ROWS <= tile->rows; row += SCORE_ROWS)
        score(space->queries + row * size, tile->layer->cache, at, scores + row * PART, size, dtype,
              SCORE_ROWS, next);
    for (; row + 3 <= tile->rows; row += 3)
        score(space->queries + row * size, tile->layer->cache, at, scores + row * PART, size, dtype, 3,
              next);
    for (; row < tile->rows; row++)
        score(space->queries + row * size, tile->layer->cache, at, scores + row * PART, size, dtype, 1,
              next);
}

/* softcap, slopes and mask of the scores of one row, of SIMD tokens from `start` on. */
INLINE vec masked(const struct tile *tile, int32_t row, int32_t start, vec score)
{
    const struct layer *layer = tile->layer;
    int32_t position = tile->task->position + row / tile->group;
    veci at = start + counted();
    if (layer->softcap > 0)
        score = layer->softcap * hyperbolic_tangent(score / layer->softcap);
    if (layer->slopes != NULL)
        score += layer->slopes[tile->head * tile->group + row % tile->group] *
                 __builtin_convertvector(at - position, vec);
    if (!tile->causal)
        return choose(at < tile->length, score, splat(-INFINITY));
    int32_t low = lowest(layer, position);
    if (start + SIMD - 1 <= position && low <= start)
        return score;
    veci seen = (at <= position) & ((at >= low) | (at < layer->sink_tokens));
    return choose(seen, score, splat(-INFINITY));
}

/* Scores of all blocks of a part that are seen become weights e^(score - most), with their sum. */
static void weigh(const struct tile *tile, struct space *space, const struct span *span)
{
    for (int32_t row = 0; row < tile->rows; row++) {
        float *scores = space->scores + row * PART;
        vec most = splat(-INFINITY), total = splat(0);
        for (int32_t start = span->start; start < span->stop; start += SIMD) {
            if (hidden_block(span, start / LANES * LANES))
                continue;
            float *block = scores + start - span->start;
            vec value = masked(tile, row, start, *(const loose_vec *)block);
            store(block, value);
            most = choose(most > value, most, value);
        }
        float top = space->part_most[row] = most_of(most);
        vec base = splat(top == -INFINITY ? 0 : top);
        for (int32_t start = span->start; start < span->stop; start += SIMD) {
            if (hidden_block(span, start / LANES * LANES))
                continue;
            float *block = scores + start - span->start;
            vec weight = exponential(*(const loose_vec *)block - base);
            store(block, weight);
            total += weight;
        }
        space->part_total[row] = sum_of(total);
    }
}

INLINE void add_values(const struct tile *tile, const char *values, int64_t at, const float *weights,
                       float *sums, int first, int last, enum dtype dtype, int rows, int vectors)
{
    const int32_t size = tile->layer->head_size_v;
    vec kept[VALUE_ROWS][VALUE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            kept[i][j] = *(const loose_vec *)(sums + i * size + j * SIMD);
    for (int t = first; t < last; t++)
        for (int j = 0; j < vectors; j++) {
            vec value = load(values, at + (int64_t)t * size + j * SIMD, dtype);
            for (int i = 0; i < rows; i++)
                kept[i][j] += weights[i * PART + t] * value;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            store(sums + i * size + j * SIMD, kept[i][j]);
}

/* All rows of a tile, for `vectors` vectors of V from dimension `d` on. */
INLINE void add_columns(const struct tile *tile, struct space *space, int64_t at,
                        const float *weights, int first, int last, int32_t d, enum dtype dtype,
                        int vectors)
{
    const int32_t size = tile->layer->head_size_v;
    int32_t row = 0;
    for (; row + VALUE_ROWS <= tile->rows; row += VALUE_ROWS)
        add_values(tile, tile->layer->cache, at + d, weights + row * PART,
                   space->part + row * size + d, first, last, dtype, VALUE_ROWS, vectors);
    for (; row < tile->rows; row++)
        add_values(tile, tile->layer->cache, at + d, weights + row * PART,
                   space->part + row * size + d, first, last, dtype, 1, vectors);
}

INLINE void add_block(const struct tile *tile, struct space *space, const struct span *span,
                      int32_t start, enum dtype dtype)
{
    const int32_t size = tile->layer->head_size_v;
    const float *weights = space->scores + start - span->start;
    int64_t at = place(tile, start, 1);
    /* Only tokens that are seen: the others may hold anything, and 0 times that is no number. */
    int first = start < span->low && start >= span->sinks ? span->low - start : 0;
    int last = span->stop - start < LANES ? span->stop - start : LANES;
    const char *next = ahead(tile, span, start, 1);
    const int64_t bytes = (int64_t)size * LANES * (dtype == FLOAT32 ? 4 : 2);
    for (int64_t line = 0; line < bytes; line += 64)
        __builtin_prefetch(next + line);
    int32_t d = 0;
    for (; d + VALUE_VECTORS * SIMD <= size; d += VALUE_VECTORS * SIMD)
        add_columns(tile, space, at, weights, first, last, d, dtype, VALUE_VECTORS);
    for (; d < size; d += SIMD)
        add_columns(tile, space, at, weights, first, last, d, dtype, 1);
}

/* Scores of all blocks of a part that a tile sees. */
INLINE void score_blocks(const struct tile *tile, struct space *space, const struct span *span,
                         enum dtype dtype)
{
    for (int32_t start = span->start; start < span->stop; start += LANES)
        if (!hidden_block(span, start))
            score_block(tile, space, place(tile, start, 0), space->scores + start - span->start,
                        dtype, ahead(tile, span, start, 0));
}

INLINE void add_blocks(const struct tile *tile, struct space *space, const struct span *span,
                       enum dtype dtype)
{
    memset(space->part, 0, sizeof(float) * (size_t)tile->rows * tile->layer->head_size_v);
    for (int32_t start = span->start; start < span->stop; start += LANES)
        if (!hidden_block(span, start))
            add_block(tile, space, span, start, dtype);
}

#define FOR_EACH_DTYPE(work, ...)                                                                  \
    switch (tile->layer->cache_dtype) {                                                            \
    case FLOAT32:                                                                                  \
        work(__VA_ARGS__, FLOAT32);                                                                \
        break;                                                                                     \
    case BFLOAT16:                                                                                 \
        work(__VA_ARGS__, BFLOAT16);                                                               \
        break;                                                                                     \
    default:                                                                                       \
        work(__VA_ARGS__, FLOAT16);                                                                \
    }

/* The softmax of one part, and its weighted sum of V, into space->part. */
static void attend_part(const struct tile *tile, struct space *space, const struct span *span)
{
    FOR_EACH_DTYPE(score_blocks, tile, space, span)
    weigh(tile, space, span);
    FOR_EACH_DTYPE(add_blocks, tile, space, span)
}

#endif
