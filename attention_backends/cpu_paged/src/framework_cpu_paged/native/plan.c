/* Steps cut into tasks, and the run of one layer. */
#include "paged.h"

#include <stdlib.h>
#include <string.h>

enum { ALONE = 1 << 14 };

static int32_t parts_of(int32_t length)
{
    return length < 1 ? 1 : (length + PART - 1) / PART;
}

/* Tasks for `group` heads to a KV head: a row's queries in tiles, or the parts of one query. */
static int cut(struct plan *plan, int32_t group)
{
    int32_t queries_of_tile = TILE / group, count = 0;
    int64_t most = 1;
    for (int32_t row = 0; row < plan->rows; row++)
        most += plan->starts[row + 1] - plan->starts[row] + parts_of(plan->lengths[row]);
    struct task *tasks = realloc(plan->tasks, (size_t)most * sizeof *tasks);
    if (tasks == NULL)
        return -1;
    plan->tasks = tasks;
    plan->parts = 0;
    for (int32_t row = 0; row < plan->rows; row++) {
        int32_t first = plan->starts[row], last = plan->starts[row + 1];
        int32_t length = plan->lengths[row], parts = parts_of(length);
        struct task task = {.row = row, .num_parts = parts, .part = -1, .count = 1};
        if (last - first == 1 && parts > 1) {
            task.first = first;
            task.position = length - 1;
            task.split = plan->parts;
            for (task.part = 0; task.part < parts; task.part++)
                tasks[count++] = task;
            plan->parts += parts;
            continue;
        }
        /* Later queries see more: those first, so that threads end together. */
        for (int32_t left = last - first; left > 0; left -= task.count) {
            task.count = left < queries_of_tile ? left : queries_of_tile;
            task.first = first + left - task.count;
            task.position = length - (last - task.first);
            if (plan->causal)
                task.num_parts = parts_of(task.position + task.count);
            tasks[count++] = task;
        }
    }
    plan->num_tasks = count;
    plan->group = group;
    return 0;
}

/* Memory for all threads and for results of parts: one block, kept from layer to layer. */
static int make_room(struct plan *plan, struct call *call, int32_t threads)
{
    const struct layer *layer = call->layer;
    size_t results = (size_t)plan->parts * (size_t)layer->heads * (size_t)(layer->head_size_v + LANES);
    size_t counters = (size_t)plan->parts * (size_t)layer->kv_heads * sizeof(atomic_int);
    call->work_size = (size_t)TILE * (size_t)(layer->head_size + PART + 2 * layer->head_size_v);
    size_t bytes = sizeof(float) * (results + (size_t)threads * call->work_size) + counters;
    if (bytes > plan->scratch_bytes) {
        free(plan->scratch);
        plan->scratch = malloc(bytes);
        plan->scratch_bytes = plan->scratch == NULL ? 0 : bytes;
    }
    if (plan->scratch == NULL)
        return -1;
    call->work = plan->scratch;
    call->partials = call->work + (size_t)threads * call->work_size;
    call->merged = (atomic_int *)(call->partials + results);
    memset(call->merged, 0, counters);
    return 0;
}

int run_layer(struct plan *plan, const struct layer *layer, int32_t threads)
{
    const struct instructions *kernels = best();
    int32_t group = layer->heads / layer->kv_heads;
    struct call call = {.plan = plan, .layer = layer};
    if (plan->group != group && cut(plan, group) < 0)
        return -1;
    if (make_room(plan, &call, threads) < 0)
        return -1;
    /* Few tokens are written in less time than it takes to wake the others.  The number of
     * threads never changes else: OpenMP would end those it does not need, and start them anew. */
    int64_t written = (int64_t)plan->tokens * layer->kv_heads * (layer->head_size + layer->head_size_v);
    in_parallel(kernels->write, &call, written < ALONE ? 1 : threads);
    in_parallel(kernels->attend, &call, plan->num_tasks * layer->kv_heads < 2 ? 1 : threads);
    return 0;
}

void free_plan(struct plan *plan)
{
    free(plan->tasks);
    free(plan->scratch);
    free(plan);
}
