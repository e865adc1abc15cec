/* The two kernels, for the instruction set that the including file has chosen: parts are taken one
 * after the other or by several threads, and put together in their order. */
#include "attend_part.h"

/* One more part into what the parts before it gave. */
static void merge(float *most, float *total, float *sum, float part_most, float part_total,
                  const float *part, int32_t size)
{
    if (part_most == -INFINITY)
        return;
    float top = *most > part_most ? *most : part_most;
    float old = *most == top ? 1 : expf(*most - top), new = part_most == top ? 1 : expf(part_most - top);
    *total = *total * old + part_total * new;
    for (int32_t d = 0; d < size; d += SIMD)
        store(sum + d, *(const loose_vec *)(sum + d) * old + *(const loose_vec *)(part + d) * new);
    *most = top;
}

static void begin(const struct layer *layer, int32_t head, float *most, float *total, float *sum)
{
    *most = layer->sinks == NULL ? -INFINITY : layer->sinks[head];
    *total = layer->sinks == NULL ? 0 : 1;
    memset(sum, 0, sizeof(float) * (size_t)layer->head_size_v);
}

static void finish(const struct layer *layer, int32_t token, int32_t head, float total,
                   const float *sum)
{
    int64_t at = ((int64_t)token * layer->heads + head) * layer->head_size_v;
    const float divisor = total > 0 || total != total ? total : INFINITY; /* none seen: zeros */
    if (layer->dtype == FLOAT32)
        for (int32_t d = 0; d < layer->head_size_v; d += SIMD)
            store((float *)layer->out + at + d, *(const loose_vec *)(sum + d) / divisor);
    else
        for (int32_t d = 0; d < layer->head_size_v; d++)
            put(layer->out, at + d, sum[d] / divisor, layer->dtype);
}

INLINE struct span span_of(const struct tile *tile, int32_t part)
{
    const struct layer *layer = tile->layer;
    const struct task *task = tile->task;
    int32_t high = tile->causal ? task->position + task->count : tile->length;
    struct span span = {.start = part * PART, .stop = (part + 1) * PART};
    span.low = tile->causal ? lowest(layer, task->position) : 0;
    span.sinks = layer->sink_tokens;
    if (span.stop > high)
        span.stop = high;
    return span;
}

INLINE int empty(const struct span *span)
{
    return span->stop <= span->low && span->start >= span->sinks;
}

static void read_queries(const struct tile *tile, struct space *space)
{
    const struct layer *layer = tile->layer;
    for (int32_t row = 0; row < tile->rows; row++) {
        int64_t at = (tile->task->first + row / tile->group) * layer->q_stride +
                     (int64_t)(tile->head * tile->group + row % tile->group) * layer->head_size;
        for (int32_t d = 0; d < layer->head_size; d++)
            space->queries[row * layer->head_size + d] = get(layer->q, at + d, layer->dtype) * layer->scale;
    }
}

/* All parts of a tile, one after the other. */
static void attend_whole(const struct tile *tile, struct space *space)
{
    const struct layer *layer = tile->layer;
    const int32_t size = layer->head_size_v, head = tile->head * tile->group;
    for (int32_t row = 0; row < tile->rows; row++)
        begin(layer, head + row % tile->group, &space->most[row], &space->total[row],
              space->sum + row * size);
    for (int32_t part = 0; part < tile->task->num_parts; part++) {
        struct span span = span_of(tile, part);
        if (empty(&span))
            continue;
        attend_part(tile, space, &span);
        for (int32_t row = 0; row < tile->rows; row++)
            merge(&space->most[row], &space->total[row], space->sum + row * size,
                  space->part_most[row], space->part_total[row], space->part + row * size, size);
    }
    for (int32_t row = 0; row < tile->rows; row++)
        finish(layer, tile->task->first + row / tile->group, head + row % tile->group,
               space->total[row], space->sum + row * size);
}

/* One part of a query whose parts are taken by several threads; the last of them merges. */
static void attend_split(struct call *call, const struct tile *tile, struct space *space)
{
    const struct layer *layer = tile->layer;
    const struct task *task = tile->task;
    const int32_t size = layer->head_size_v, record = size + LANES;
    struct span span = span_of(tile, task->part);
    /* Results of the row's first part, KV head and head; the parts' follow one another. */
    float *results = call->partials +
                     ((int64_t)task->split * layer->kv_heads + (int64_t)tile->head * task->num_parts) *
                         tile->group * record;
    float *own = results + (int64_t)task->part * tile->group * record;
    if (!empty(&span))
        attend_part(tile, space, &span);
    for (int32_t row = 0; row < tile->rows; row++) {
        own[row * record + size] = empty(&span) ? -INFINITY : space->part_most[row];
        own[row * record + size + 1] = space->part_total[row];
        memcpy(own + row * record, space->part + row * size, sizeof(float) * (size_t)size);
    }
    atomic_int *done = &call->merged[(int64_t)task->split * layer->kv_heads + tile->head];
    if (atomic_fetch_add(done, 1) + 1 < task->num_parts)
        return;
    for (int32_t row = 0; row < tile->rows; row++) {
        int32_t head = tile->head * tile->group + row;
        float most, total, *sum = space->sum;
        begin(layer, head, &most, &total, sum);
        for (int32_t part = 0; part < task->num_parts; part++) {
            const float *result = results + ((int64_t)part * tile->group + row) * record;
            merge(&most, &total, sum, result[size], result[size + 1], result, size);
        }
        finish(layer, task->first, head, total, sum);
    }
}

static void attend_tile(struct call *call, int32_t index, struct space *space)
{
    const struct layer *layer = call->layer;
    const struct plan *plan = call->plan;
    const struct task *task = &plan->tasks[index / layer->kv_heads];
    struct tile tile = {
        .layer = layer,
        .task = task,
        .table = plan->table + task->row * plan->table_stride,
        .head = index % layer->kv_heads,
        .group = layer->heads / layer->kv_heads,
        .causal = plan->causal,
        .length = plan->lengths[task->row],
    };
    tile.rows = task->count * tile.group;
    read_queries(&tile, space);
    if (task->part >= 0)
        attend_split(call, &tile, space);
    else
        attend_whole(&tile, space);
}

void SUFFIX(attend)(void *data)
{
    struct call *call = data;
    const struct layer *layer = call->layer;
    const int32_t total = call->plan->num_tasks * layer->kv_heads;
    float *mine = call->work + (size_t)atomic_fetch_add(&call->next_scratch, 1) * call->work_size;
    struct space space;
    space.queries = mine;
    space.scores = space.queries + TILE * layer->head_size;
    space.part = space.scores + TILE * PART;
    space.sum = space.part + TILE * layer->head_size_v;
    for (;;) {
        int32_t index = atomic_fetch_add(&call->next_task, 1);
        if (index >= total)
            return;
        attend_tile(call, index, &space);
    }
}

void SUFFIX(write)(void *data)
{
    struct call *call = data;
    const struct layer *layer = call->layer;
    const int32_t size = layer->head_size, size_v = layer->head_size_v, tokens = layer->page_tokens;
    const int64_t per_head = (int64_t)tokens * (size + size_v);
    for (;;) {
        int32_t token = atomic_fetch_add(&call->next_token, 1);
        if (token >= call->plan->tokens)
            return;
        int64_t slot = call->plan->slots[token], page = slot / tokens, offset = slot % tokens;
        for (int32_t head = 0; head < layer->kv_heads; head++) {
            int64_t keys = page * layer->page_stride + head * per_head;
            int64_t values = keys + (int64_t)tokens * size + offset * size_v;
            int64_t k = token * layer->k_stride + (int64_t)head * size;
            int64_t v = token * layer->v_stride + (int64_t)head * size_v;
            keys += offset / LANES * LANES * size + offset % LANES;
            for (int32_t d = 0; d < size; d++)
                put(layer->cache, keys + (int64_t)d * LANES, get(layer->k, k + d, layer->dtype),
                    layer->cache_dtype);
            for (int32_t d = 0; d < size_v; d++)
                put(layer->cache, values + d, get(layer->v, v + d, layer->dtype), layer->cache_dtype);
        }
    }
}
