/* Low-rank updates of what a linear map gave, as adapters have them. */
#include "packed.h"

#include <string.h>

/* Products of so few numbers take less time than it takes to wake the other threads. */
enum { ALONE = 1 << 18 };

struct shared {
    const struct low_ranks *asked;
    atomic_int next, failed;
};

static int64_t work_of(const struct low_rank *update)
{
    return (int64_t)update->rows * update->down->outputs *
           ((int64_t)update->down->inputs + update->up->outputs);
}

static int run_one(const struct low_ranks *asked, const struct low_rank *update, int32_t threads)
{
    const int64_t rows = update->rows, inputs = update->down->inputs, rank = update->down->outputs;
    const int64_t outputs = update->up->outputs;
    float *x = room_for(LOW_RANK, sizeof(float) * (size_t)(rows * (inputs + rank + outputs)));
    if (x == NULL)
        return -1;
    float *between = x + rows * inputs, *added = between + rows * rank;
    struct product first = {.packed = update->down, .x = asked->x, .x_stride = asked->x_stride,
                            .out = between, .out_stride = rank, .rows = update->rows};
    if (update->at != NULL) {
        for (int64_t row = 0; row < rows; row++)
            memcpy(x + row * inputs, asked->x + update->at[row] * asked->x_stride,
                   sizeof(float) * (size_t)inputs);
        first.x = x;
        first.x_stride = inputs;
    }
    const struct product second = {.packed = update->up, .x = between, .x_stride = rank,
                                   .out = added, .out_stride = outputs, .rows = update->rows};
    if (run_product(&first, threads) < 0 || run_product(&second, threads) < 0)
        return -1;
    for (int64_t row = 0; row < rows; row++) {
        float *y = asked->y + (update->at == NULL ? row : update->at[row]) * asked->y_stride;
        for (int64_t i = 0; i < outputs; i++)
            y[i] += added[row * outputs + i];
    }
    return 0;
}

static void run_some(void *data)
{
    struct shared *shared = data;
    for (;;) {
        int index = atomic_fetch_add(&shared->next, 1);
        if (index >= shared->asked->count)
            return;
        if (run_one(shared->asked, &shared->asked->updates[index], 1) < 0)
            atomic_store(&shared->failed, 1);
    }
}

int run_low_ranks(const struct low_ranks *asked, int32_t threads)
{
    int64_t total = 0, most = 0;
    for (int32_t i = 0; i < asked->count; i++) {
        const int64_t work = work_of(&asked->updates[i]);
        total += work;
        most = work > most ? work : most;
    }
    if (most >= ALONE) { /* one that all threads take together */
        for (int32_t i = 0; i < asked->count; i++)
            if (run_one(asked, &asked->updates[i], threads) < 0)
                return -1;
        return 0;
    }
    struct shared shared = {.asked = asked};
    in_parallel(run_some, &shared, asked->count < 2 || total < ALONE / 2 ? 1 : threads);
    return shared.failed ? -1 : 0;
}
