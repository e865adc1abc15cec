/* Room that a thread keeps from call to call: what is taken anew from the system for every step
 * would have to be cleared by it, page by page. */
#include "packed.h"

#include <pthread.h>
#include <stdlib.h>

enum { LINE = 64 };
struct room {
    void *values[USES];
    size_t bytes[USES];
};
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_room(void *data)
{
    struct room *room = data;
    for (int use = 0; use < USES; use++)
        free(room->values[use]);
    free(room);
}

static void make_key(void)
{
    if (pthread_key_create(&key, free_room))
        abort();
}

void *room_for(enum use use, size_t bytes)
{
    pthread_once(&once, make_key);
    struct room *room = pthread_getspecific(key);
    if (room == NULL) {
        room = calloc(1, sizeof *room);
        if (room == NULL)
            return NULL;
        pthread_setspecific(key, room);
    }
    if (room->values[use] == NULL || room->bytes[use] < bytes) {
        free(room->values[use]);
        /* Whole lines, so that no vector lies in two; at least one, as NULL is for want of memory alone. */
        const size_t whole = (bytes / LINE + 1) * LINE;
        room->values[use] = aligned_alloc(LINE, whole);
        room->bytes[use] = room->values[use] == NULL ? 0 : bytes;
    }
    return room->values[use];
}
