/* Packing, and products cut among threads. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

/* Rows of a task share the panels they are multiplied with; more would not stay in the cache. */
enum { TASK_ROWS = 96, TASKS_OF_A_THREAD = 16, ALIGNMENT = 64, ALONE = 32, ROWS_AT_ONCE = 4 };

int fits_bfloat16(const float *values, int64_t count)
{
    const uint32_t *words = (const uint32_t *)values;
    for (int64_t start = 0; start < count; start += 4096) {
        uint32_t any = 0;
        int64_t stop = start + 4096 < count ? start + 4096 : count;
        for (int64_t i = start; i < stop; i++)
            any |= words[i] & 0xffff;
        if (any)
            return 0;
    }
    return 1;
}

struct packing {
    struct packed *packed;
    const float *weights; /* where those of output 0 would be */
    int64_t stride;
    int32_t end;
    atomic_int next;
};

static void pack_some(void *data)
{
    struct packing *packing = data;
    for (;;) {
        int32_t panel = atomic_fetch_add(&packing->next, 1);
        if (panel >= packing->end)
            return;
        best()->kernels->pack(packing->packed, packing->weights, packing->stride, panel, panel + 1);
    }
}

void fill_packed(struct packed *packed, const float *weights, int64_t stride, int32_t first,
                 int32_t count, int32_t threads)
{
    const uintptr_t before = (uintptr_t)first * (uintptr_t)stride * sizeof *weights;
    struct packing packing = {packed, (const float *)((uintptr_t)weights - before), stride,
                              (first + count + packed->width - 1) / packed->width,
                              first / packed->width};
    in_parallel(pack_some, &packing, threads);
}

static size_t taken_bytes(const struct packed *packed)
{
    return (size_t)packed_bytes(packed) + ALIGNMENT;
}

struct packed *make_packed(int32_t outputs, int32_t inputs, const float *bias, int32_t dtype,
                           int lossless)
{
    const struct kernels *kernels = best()->kernels;
    const int32_t panels = (outputs + kernels->width - 1) / kernels->width;
    struct packed *packed = calloc(1, sizeof *packed);
    if (packed == NULL)
        return NULL;
    *packed = (struct packed){.outputs = outputs, .inputs = inputs, .panels = panels,
                              .width = kernels->width, .dtype = dtype,
                              .depth = kernels->depth(inputs, dtype), .parts = lossless ? 3 : 2};
    const size_t each = (size_t)panels * (size_t)kernels->width + 1;
    const size_t bytes = taken_bytes(packed);
    packed->weights = take_weights(bytes, &packed->piece);
    int failed = packed->weights == NULL;
    if (bias != NULL)
        failed |= (packed->bias = calloc(each, sizeof *bias)) == NULL;
    if (dtype == INT8 || dtype == INT16)
        failed |= (packed->scales = calloc(each, sizeof *packed->scales)) == NULL;
    if (failed) {
        free_packed(packed);
        return NULL;
    }
    memset(packed->weights, 0, bytes);
    if (bias != NULL)
        memcpy(packed->bias, bias, sizeof *bias * (size_t)outputs);
    return packed;
}

void free_packed(struct packed *packed)
{
    give_weights_back(packed->piece, packed->weights, taken_bytes(packed));
    free(packed->bias);
    free(packed->scales);
    free(packed);
}

int64_t packed_bytes(const struct packed *packed)
{
    return (int64_t)packed->panels * packed->width * packed->depth * element_bytes(packed->dtype);
}

struct shared {
    const struct product *product;
    int32_t panels, rows, across, tasks; /* of a task; tasks side by side; in all */
    atomic_int next;
};

static void multiply_some(void *data)
{
    struct shared *shared = data;
    const struct kernels *kernels = best()->kernels;
    const struct product *product = shared->product;
    for (;;) {
        int32_t task = atomic_fetch_add(&shared->next, 1);
        if (task >= shared->tasks)
            return;
        int32_t first = task % shared->across * shared->panels, last = first + shared->panels;
        int32_t start = task / shared->across * shared->rows, stop = start + shared->rows;
        if (last > product->packed->panels)
            last = product->packed->panels;
        if (stop > product->rows)
            stop = product->rows;
        kernels->multiply(product, first, last, start, stop);
    }
}

struct preparing {
    const struct product *product;
    char *prepared;
    atomic_int next;
};

static void prepare_some(void *data)
{
    struct preparing *preparing = data;
    const struct product *product = preparing->product;
    for (;;) {
        int32_t row = atomic_fetch_add(&preparing->next, ROWS_AT_ONCE), end = row + ROWS_AT_ONCE;
        if (row >= product->rows)
            return;
        for (; row < end && row < product->rows; row++)
            best()->kernels->prepare(product->packed, product->x + row * product->x_stride,
                                     preparing->prepared + row * product->prepared_stride);
    }
}

/* The rows as the kernels want them, in room of this thread. */
static int prepare(struct product *product, int64_t bytes, int32_t threads)
{
    char *room = room_for(PREPARED, (size_t)product->rows * (size_t)bytes);
    if (room == NULL)
        return -1;
    product->prepared_stride = bytes;
    struct preparing preparing = {product, room, 0};
    in_parallel(prepare_some, &preparing, product->rows < ALONE ? 1 : threads);
    product->prepared = room;
    return 0;
}

int run_product(const struct product *asked, int32_t threads)
{
    struct product product = *asked;
    const int32_t panels = product.packed->panels;
    if (product.rows < 1 || panels < 1)
        return 0;
    const int64_t bytes = best()->kernels->prepared_bytes(product.packed);
    if (bytes && prepare(&product, bytes, threads) < 0)
        return -1;
    struct shared shared = {.product = &product};
    int32_t down = (product.rows + TASK_ROWS - 1) / TASK_ROWS;
    shared.rows = (product.rows + down - 1) / down;
    int32_t wanted = TASKS_OF_A_THREAD * threads / down;
    shared.panels = wanted < 1 ? panels : (panels + wanted - 1) / wanted;
    const int32_t grain = best()->kernels->grain;
    shared.panels = (shared.panels + grain - 1) / grain * grain;
    shared.across = (panels + shared.panels - 1) / shared.panels;
    shared.tasks = shared.across * down;
    in_parallel(multiply_some, &shared, shared.tasks < 2 ? 1 : threads);
    return 0;
}
