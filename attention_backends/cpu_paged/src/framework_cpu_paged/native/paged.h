/* Attention over pages of a KV cache on a CPU.
 *
 * A page of one layer holds, for each KV head, its K and then its V:
 *   K [page_tokens / LANES][head_size][LANES]   a vector is one dimension of LANES tokens
 *   V [page_tokens][head_size_v]
 * Tokens of a request are taken in parts of PART tokens, counted from its first token.  The
 * result of a part is a maximum, a sum and a weighted sum of V; parts are merged in order.  What
 * is computed for a query depends on its own position alone, and not on what is computed beside
 * it, nor by which thread: so results are equal bit for bit whatever the batch and its chunks.
 */
#ifndef PAGED_H
#define PAGED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the compiler knows tiles; whether the processor has them is asked at run time. */
#if defined(__x86_64__) && defined(__linux__) && defined(__has_include)
#if __has_include(<amxbf16intrin.h>)
#define WITH_AMX
#endif
#endif

enum { LANES = 16, PART = 512, TILE = 32 };
enum dtype { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

/* Queries [first, first + count) of a step's tokens, which are of one row.  part: the one part of
 * the row's tokens to look at, or -1 for all.  split: where its parts' results go, if part >= 0. */
struct task {
    int32_t row, first, count, position, part, num_parts, split;
};

/* What a step needs, made once for all layers.  starts, lengths, table, slots belong to the
 * caller, who keeps them alive.  group: heads to a KV head that tasks were made for.  parts: of
 * all rows with one query, which threads share. */
struct plan {
    int32_t rows, tokens, causal, group, num_tasks, parts;
    const int32_t *starts, *lengths, *table;
    int64_t table_stride;
    const int64_t *slots;
    struct task *tasks;
    void *scratch;
    size_t scratch_bytes;
};

/* One layer.  Strides count elements.  window, chunk: 0 for none; softcap: 0 for none; sinks,
 * slopes: a float for each head, or NULL. */
struct layer {
    const void *q, *k, *v;
    char *cache;
    void *out;
    int64_t q_stride, k_stride, v_stride, page_stride;
    int32_t dtype, cache_dtype;
    int32_t heads, kv_heads, head_size, head_size_v, page_tokens;
    int32_t window, chunk, sink_tokens;
    float scale, softcap;
    const float *sinks, *slopes;
};

struct call {
    const struct plan *plan;
    const struct layer *layer;
    atomic_int next_token, next_task, next_scratch;
    atomic_int *merged; /* for each split and KV head, how many parts are done */
    float *partials, *work;
    size_t work_size;
};

typedef void kernel(void *call);

/* Of one instruction set: writes K and V, and attends. */
kernel write_avx512, attend_avx512, write_avx2, attend_avx2, write_plain, attend_plain;

void free_plan(struct plan *plan); /* and its tasks and scratch */
/* Write K and V of a step's tokens, then attend.  0, or -1 when memory is short. */
int run_layer(struct plan *plan, const struct layer *layer, int32_t threads);

struct kernels;
/* What one instruction set offers, and whether the processor has it. */
struct instructions {
    const char *name;
    int (*here)(void);
    kernel *write, *attend;
    const struct kernels *kernels;
};
/* Choose the best that the processor has, up to the one of that name, if any: 0, or -1 if there is
 * none of that name.  Once, before anything else. */
int choose_instructions(const char *most);
const struct instructions *best(void);
extern const char *const INSTRUCTION_SETS;

/* Run work(data) in `threads` threads of the pool that torch uses, this one included, and wait
 * for all. */
void in_parallel(void (*work)(void *), void *data, int32_t threads);
/* Look for that pool, once; the path of its library, or NULL: then all runs in the caller. */
const char *find_pool(void);

#endif
