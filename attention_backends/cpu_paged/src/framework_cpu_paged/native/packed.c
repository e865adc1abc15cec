/* Packing, and products cut among threads. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

/* Rows of a task share the panels they are multiplied with; more would not stay in the cache. */
enum { TASK_ROWS = 96, TASKS_OF_A_THREAD = 4, ALIGNMENT = 64 };

const struct kernels *best_kernels(void)
{
    const char *name = instruction_set();
#if defined(__x86_64__)
    if (!strcmp(name, "avx512"))
        return &kernels_avx512;
    if (!strcmp(name, "avx2"))
        return &kernels_avx2;
#endif
    (void)name;
    return &kernels_plain;
}

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
    const float *weights;
    int64_t stride;
    atomic_int next;
};

static void pack_some(void *data)
{
    struct packing *packing = data;
    for (;;) {
        int32_t panel = atomic_fetch_add(&packing->next, 1);
        if (panel >= packing->packed->panels)
            return;
        best_kernels()->pack(packing->packed, packing->weights, packing->stride, panel, panel + 1);
    }
}

struct packed *make_packed(const float *weights, int64_t stride, int32_t outputs, int32_t inputs,
                           const float *bias, int32_t dtype, int32_t threads)
{
    const int32_t width = best_kernels()->width, panels = (outputs + width - 1) / width;
    struct packed *packed = calloc(1, sizeof *packed);
    if (packed == NULL)
        return NULL;
    *packed = (struct packed){outputs, inputs, panels, width, dtype, NULL, NULL};
    void *room = NULL;
    if (posix_memalign(&room, ALIGNMENT, (size_t)packed_bytes(packed) + ALIGNMENT))
        room = NULL;
    packed->weights = room;
    if (bias != NULL)
        packed->bias = calloc((size_t)panels * (size_t)width + 1, sizeof *bias);
    if (room == NULL || (bias != NULL && packed->bias == NULL)) {
        free_packed(packed);
        return NULL;
    }
    if (bias != NULL)
        memcpy(packed->bias, bias, sizeof *bias * (size_t)outputs);
    struct packing packing = {packed, weights, stride, 0};
    in_parallel(pack_some, &packing, threads);
    return packed;
}

void free_packed(struct packed *packed)
{
    free(packed->weights);
    free(packed->bias);
    free(packed);
}

int64_t packed_bytes(const struct packed *packed)
{
    const int64_t element = packed->dtype == FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    return (int64_t)packed->panels * packed->width * packed->inputs * element;
}

struct shared {
    const struct product *product;
    int32_t panels, rows, across, tasks; /* of a task; tasks side by side; in all */
    atomic_int next;
};

static void multiply_some(void *data)
{
    struct shared *shared = data;
    const struct kernels *kernels = best_kernels();
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

void run_product(const struct product *product, int32_t threads)
{
    const int32_t panels = product->packed->panels;
    if (product->rows < 1 || panels < 1)
        return;
    struct shared shared = {.product = product};
    int32_t down = (product->rows + TASK_ROWS - 1) / TASK_ROWS;
    shared.rows = (product->rows + down - 1) / down;
    /* Four panels at least: few rows are multiplied with as many at a time. */
    int32_t wanted = TASKS_OF_A_THREAD * threads / down;
    shared.panels = wanted < 1 ? panels : (panels + wanted - 1) / wanted;
    shared.panels = (shared.panels + 3) / 4 * 4;
    shared.across = (panels + shared.panels - 1) / shared.panels;
    shared.tasks = shared.across * down;
    in_parallel(multiply_some, &shared, shared.tasks < 2 ? 1 : threads);
}
