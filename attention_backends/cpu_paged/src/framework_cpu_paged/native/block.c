/* What stands before and behind a layer's attention, in as few passes as the sums allow. */
#include "packed.h"

/* Rows that are taken through all stages together: what is between the stages stays in the cache,
 * and its room is bounded.  Few rows are not worth waking the other threads. */
enum { CHUNK = 192, ALONE = 16 };

/* A function of each row. */
struct rows {
    void (*work)(const struct rows *rows, int32_t row);
    const struct kernels *kernels;
    const void *what;
    const float *x, *more, *cosines, *sines;
    float *out;
    int64_t x_stride, more_stride, out_stride;
    int32_t size, count;
    atomic_int next;
};

static void some_rows(void *data)
{
    struct rows *rows = data;
    for (;;) {
        int32_t row = atomic_fetch_add(&rows->next, 4);
        if (row >= rows->count)
            return;
        for (int32_t end = row + 4 < rows->count ? row + 4 : rows->count; row < end; row++)
            rows->work(rows, row);
    }
}

static void each_row(struct rows *rows, int32_t threads)
{
    rows->kernels = best()->kernels;
    atomic_store(&rows->next, 0);
    in_parallel(some_rows, rows, rows->count < ALONE ? 1 : threads);
}

static void norm_row(const struct rows *rows, int32_t row)
{
    const struct norm *norm = rows->what;
    rows->kernels->norm(rows->x + row * rows->x_stride, norm->weight, norm->offset, norm->eps,
                        rows->size, rows->more == NULL ? NULL : rows->more + row * rows->more_stride,
                        rows->out + row * rows->out_stride);
}

static void heads_of_row(const struct rows *rows, int32_t row)
{
    const struct entry *entry = rows->what;
    const int32_t size = entry->head_size;
    const float *cosines = rows->cosines + (int64_t)row * (size / 2);
    const float *sines = rows->sines + (int64_t)row * (size / 2);
    float *heads = rows->out + row * rows->out_stride;
    for (int32_t head = 0; head < entry->heads + entry->kv_heads; head++) {
        const struct norm *norm = head < entry->heads ? &entry->query_norm : &entry->key_norm;
        float *x = heads + (int64_t)head * size;
        if (norm->weight != NULL)
            rows->kernels->norm(x, norm->weight, norm->offset, norm->eps, size, NULL, x);
        rows->kernels->rotate(x, cosines, sines, size);
    }
}

static void gate_row(const struct rows *rows, int32_t row)
{
    const struct leave *leave = rows->what;
    rows->kernels->gate(rows->x + row * rows->x_stride, rows->size, leave->activation,
                        rows->out + row * rows->out_stride);
}

static void run_norm(const struct norm *norm, const float *x, int64_t x_stride, const float *more,
                     int64_t more_stride, float *out, int32_t size, int32_t count, int32_t threads)
{
    struct rows rows = {.work = norm_row, .what = norm, .x = x, .x_stride = x_stride, .more = more,
                        .more_stride = more_stride, .out = out, .out_stride = size, .size = size,
                        .count = count};
    each_row(&rows, threads);
}

static int32_t fewer(int32_t one, int32_t other)
{
    return one < other ? one : other;
}

/* y = y + the updates of its map for these rows of all. */
static int run_updates(const struct uses *uses, int32_t start, int32_t count, const float *x,
                       int64_t x_stride, float *y, int64_t y_stride, int32_t threads)
{
    if (uses == NULL || uses->count == 0)
        return 0;
    struct uses within;
    if (uses_within(uses, start, count, &within) < 0)
        return -1;
    int failed = run_low_ranks(&within, x, x_stride, y, y_stride, threads);
    free_uses(&within);
    return failed;
}

int run_entry(const struct entry *entry, const float *x, int64_t x_stride, const float *cosines,
              const float *sines, float *out, int32_t rows, const struct entry_uses *uses,
              int32_t threads)
{
    const struct packed *linear = entry->linear;
    const int32_t size = linear->inputs, half = entry->head_size / 2;
    float *normed = room_for(BETWEEN_STAGES, (size_t)fewer(rows, CHUNK) * (size_t)size * sizeof(float));
    if (normed == NULL)
        return -1;
    for (int32_t start = 0; start < rows; start += CHUNK) {
        int32_t count = fewer(rows - start, CHUNK);
        float *heads = out + (int64_t)start * linear->outputs;
        run_norm(&entry->norm, x + start * x_stride, x_stride, NULL, 0, normed, size, count, threads);
        struct product product = {.packed = linear, .x = normed, .x_stride = size, .out = heads,
                                  .out_stride = linear->outputs, .rows = count};
        if (run_product(&product, threads) < 0)
            return -1;
        if (uses != NULL && run_updates(&uses->linear, start, count, normed, size, heads,
                                        linear->outputs, threads) < 0)
            return -1;
        struct rows turned = {.work = heads_of_row, .what = entry, .out = heads,
                              .out_stride = linear->outputs, .count = count,
                              .cosines = cosines + (int64_t)start * half,
                              .sines = sines + (int64_t)start * half};
        each_row(&turned, threads);
    }
    return 0;
}

/* Rows [start, start + count) of all. */
struct span {
    int32_t start, count;
};

/* out = x + norm(attended times output), or the same without the norm; the updates are of the
 * product. */
static int add_normed(const struct norm *norm, const struct packed *linear, const struct uses *uses,
                      struct span span, const float *from, int64_t from_stride, const float *x,
                      int64_t x_stride, float *between, float *out, int32_t threads)
{
    const int32_t size = linear->outputs;
    struct product product = {.packed = linear, .x = from, .x_stride = from_stride, .more = x,
                              .more_stride = x_stride, .out = out, .out_stride = size,
                              .rows = span.count};
    if (norm->weight != NULL) {
        product.more = NULL;
        product.out = between;
    }
    if (run_product(&product, threads) < 0)
        return -1;
    if (run_updates(uses, span.start, span.count, from, from_stride, product.out, size, threads) < 0)
        return -1;
    if (norm->weight != NULL)
        run_norm(norm, between, size, x, x_stride, out, size, span.count, threads);
    return 0;
}

int run_leave(const struct leave *leave, const float *attended, int64_t attended_stride,
              const float *x, int64_t x_stride, float *out, int32_t rows,
              const struct leave_uses *uses, int32_t threads)
{
    const struct leave_uses none = {0};
    const int32_t size = leave->output->outputs, middle = leave->down->inputs;
    const size_t most = (size_t)fewer(rows, CHUNK);
    float *sums = room_for(BETWEEN_STAGES, most * (size_t)(2 * size + 3 * middle) * sizeof(float));
    if (sums == NULL)
        return -1;
    float *normed = sums + most * (size_t)size, *gate_up = normed + most * (size_t)size;
    float *gated = gate_up + most * 2 * (size_t)middle;
    if (uses == NULL)
        uses = &none;
    for (int32_t start = 0; start < rows; start += CHUNK) {
        int32_t count = fewer(rows - start, CHUNK);
        const struct span span = {start, count};
        if (add_normed(&leave->attention_norm, leave->output, &uses->output, span,
                       attended + start * attended_stride, attended_stride, x + start * x_stride,
                       x_stride, normed, sums, threads) < 0)
            return -1;
        run_norm(&leave->norm, sums, size, NULL, 0, normed, size, count, threads);
        struct product product = {.packed = leave->gate_up, .x = normed, .x_stride = size,
                                  .out = gate_up, .out_stride = 2 * middle, .rows = count};
        if (run_product(&product, threads) < 0)
            return -1;
        if (run_updates(&uses->gate_up, start, count, normed, size, gate_up, 2 * middle, threads) < 0)
            return -1;
        struct rows gate = {.work = gate_row, .what = leave, .x = gate_up, .x_stride = 2 * middle,
                            .out = gated, .out_stride = middle, .size = middle, .count = count};
        each_row(&gate, threads);
        if (add_normed(&leave->mlp_norm, leave->down, &uses->down, span, gated, middle, sums, size,
                       normed, out + (int64_t)start * size, threads) < 0)
            return -1;
    }
    return 0;
}
