/* Low-rank updates of what a linear map gave, as adapters have them. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

/* Products of so few numbers take less time than it takes to wake the other threads. */
enum { ALONE = 1 << 18 };

struct asked {
    const struct uses *uses;
    const float *x;
    float *y;
    int64_t x_stride, y_stride;
    atomic_int next, failed;
};

static int64_t work_of(const struct applied *use)
{
    const struct low_rank *update = use->update;
    int64_t each = (int64_t)update->down->outputs * update->down->inputs;
    for (int32_t i = 0; i < update->count; i++)
        each += (int64_t)update->ups[i].packed->outputs * update->ups[i].packed->inputs;
    return use->rows * each;
}

/* y = y + between times a part of the second map, for the rows of one use. */
static int add_part(const struct asked *asked, const struct applied *use, const struct up *up,
                    const float *between, float *added, int32_t threads)
{
    const int64_t outputs = up->packed->outputs;
    const struct product product = {.packed = up->packed, .x = between + up->from,
                                    .x_stride = use->update->down->outputs, .out = added,
                                    .out_stride = outputs, .rows = use->rows};
    if (run_product(&product, threads) < 0)
        return -1;
    for (int64_t row = 0; row < use->rows; row++) {
        float *y = asked->y + (use->at == NULL ? row : use->at[row]) * asked->y_stride + up->to;
        for (int64_t i = 0; i < outputs; i++)
            y[i] += added[row * outputs + i];
    }
    return 0;
}

static int run_one(const struct asked *asked, const struct applied *use, int32_t threads)
{
    const struct packed *down = use->update->down;
    const int64_t rows = use->rows, inputs = down->inputs, rank = down->outputs;
    float *x = room_for(LOW_RANK,
                        sizeof(float) * (size_t)(rows * (inputs + rank + use->update->outputs)));
    if (x == NULL)
        return -1;
    float *between = x + rows * inputs, *added = between + rows * rank;
    struct product first = {.packed = down, .x = asked->x, .x_stride = asked->x_stride,
                            .out = between, .out_stride = rank, .rows = use->rows};
    if (use->at != NULL) {
        for (int64_t row = 0; row < rows; row++)
            memcpy(x + row * inputs, asked->x + use->at[row] * asked->x_stride,
                   sizeof(float) * (size_t)inputs);
        first.x = x;
        first.x_stride = inputs;
    }
    if (run_product(&first, threads) < 0)
        return -1;
    for (int32_t i = 0; i < use->update->count; i++)
        if (add_part(asked, use, &use->update->ups[i], between, added, threads) < 0)
            return -1;
    return 0;
}

static void run_some(void *data)
{
    struct asked *asked = data;
    for (;;) {
        int index = atomic_fetch_add(&asked->next, 1);
        if (index >= asked->uses->count)
            return;
        if (run_one(asked, &asked->uses->of[index], 1) < 0)
            atomic_store(&asked->failed, 1);
    }
}

int run_low_ranks(const struct uses *uses, const float *x, int64_t x_stride, float *y, int64_t y_stride,
                  int32_t threads)
{
    struct asked asked = {.uses = uses, .x = x, .y = y, .x_stride = x_stride, .y_stride = y_stride};
    int64_t total = 0, most = 0;
    for (int32_t i = 0; i < uses->count; i++) {
        const int64_t work = work_of(&uses->of[i]);
        total += work;
        most = work > most ? work : most;
    }
    if (most >= ALONE && most * threads > total) { /* all threads take each of them together */
        for (int32_t i = 0; i < uses->count; i++)
            if (run_one(&asked, &uses->of[i], threads) < 0)
                return -1;
        return 0;
    }
    in_parallel(run_some, &asked, uses->count < 2 || total < ALONE / 2 ? 1 : threads);
    return asked.failed ? -1 : 0;
}

int uses_within(const struct uses *uses, int32_t start, int32_t count, struct uses *within)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < uses->count; i++)
        rows += uses->of[i].at == NULL ? 0 : uses->of[i].rows;
    const size_t each = sizeof *uses->of * (size_t)uses->count;
    *within = (struct uses){.of = malloc(each + sizeof(int64_t) * (size_t)rows + 1)};
    if (within->of == NULL)
        return -1;
    int64_t *places = (int64_t *)((char *)within->of + each);
    for (int32_t i = 0; i < uses->count; i++) {
        const struct applied *use = &uses->of[i];
        struct applied own = {.update = use->update};
        if (use->at == NULL) {
            const int32_t left = use->rows - start;
            own.rows = left < 0 ? 0 : left < count ? left : count;
        } else {
            own.at = places;
            for (int32_t row = 0; row < use->rows; row++)
                if (use->at[row] >= start && use->at[row] < start + count)
                    places[own.rows++] = use->at[row] - start;
            places += own.rows;
        }
        if (own.rows > 0)
            within->of[within->count++] = own;
    }
    return 0;
}

void free_uses(struct uses *uses)
{
    free(uses->of);
    *uses = (struct uses){0};
}
