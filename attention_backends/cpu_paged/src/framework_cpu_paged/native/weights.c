/* Memory for packed weights, of many matrices side by side.
 *
 * A step reads all weights once.  With pages of 4 KB a good part of that time goes into looking up
 * where they lie; so they are taken from the system in pieces that are large enough for its large
 * pages, which Linux gives where it is asked to (transparent_hugepage: madvise or always). */
#define _GNU_SOURCE
#include "packed.h"

#include <pthread.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { LARGE_PAGE = 1 << 21, PIECE = 32 * LARGE_PAGE, LINE = 64 };

/* users: the matrices in it, and one more while it is being filled. */
struct piece {
    char *start;
    size_t bytes, used;
    int users;
};
static struct piece *open_piece;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct piece *make_piece(size_t bytes)
{
    struct piece *piece = calloc(1, sizeof *piece);
    void *start = NULL;
    bytes = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (piece == NULL || posix_memalign(&start, LARGE_PAGE, bytes)) {
        free(piece);
        return NULL;
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(start, bytes, MADV_HUGEPAGE); /* a wish: without it all is slower, not wrong */
#endif
    *piece = (struct piece){.start = start, .bytes = bytes, .users = 1};
    return piece;
}

static void leave(struct piece *piece)
{
    if (piece != NULL && --piece->users == 0) {
        free(piece->start);
        free(piece);
    }
}

void *take_weights(size_t bytes, struct piece **from)
{
    void *taken = NULL;
    bytes = (bytes + LINE - 1) / LINE * LINE;
    pthread_mutex_lock(&lock);
    if (open_piece == NULL || open_piece->bytes - open_piece->used < bytes) {
        leave(open_piece);
        open_piece = make_piece(bytes > PIECE ? bytes : PIECE);
    }
    if (open_piece != NULL) {
        taken = open_piece->start + open_piece->used;
        open_piece->used += bytes;
        open_piece->users++;
    }
    *from = open_piece;
    pthread_mutex_unlock(&lock);
    return taken;
}

void give_weights_back(struct piece *from, const void *taken, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (from != NULL) { /* the next may have the place of what was taken last */
        bytes = (bytes + LINE - 1) / LINE * LINE;
        if ((const char *)taken + bytes == from->start + from->used)
            from->used -= bytes;
    }
    leave(from);
    /* All gone but what may come: then let the memory go, too. */
    if (open_piece != NULL && open_piece->users == 1) {
        leave(open_piece);
        open_piece = NULL;
    }
    pthread_mutex_unlock(&lock);
}
