/* torch's own thread pool: a second one would fight with it for the cores.  The OpenMP library
 * that torch has loaded is looked up rather than linked, as its name differs from build to build. */
#define _GNU_SOURCE
#include "paged.h"

#include <stdio.h>
#include <string.h>

typedef void parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);

static parallel *run_in_pool;
static char library[4096];

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>

enum { MOST = 8 };
struct names {
    int count;
    char paths[MOST][sizeof library];
};

static int note(struct dl_phdr_info *info, size_t size, void *data)
{
    struct names *names = data;
    const char *name = strrchr(info->dlpi_name, '/');
    (void)size;
    name = name ? name + 1 : info->dlpi_name;
    if (!strncmp(name, "libgomp", 7) || !strncmp(name, "libiomp", 7) ||
        !strncmp(name, "libomp", 6))
        snprintf(names->paths[names->count++], sizeof library, "%s", info->dlpi_name);
    return names->count == MOST;
}

static void look_up(void)
{
    static struct names names; /* under Python's lock, at import */
    names.count = 0;
    dl_iterate_phdr(note, &names);
    for (int i = 0; i < names.count && run_in_pool == NULL; i++) {
        void *handle = dlopen(names.paths[i], RTLD_NOW | RTLD_NOLOAD);
        /* Intel's and LLVM's libraries serve GNU's entry point as well. */
        if (handle != NULL)
            run_in_pool = (parallel *)dlsym(handle, "GOMP_parallel");
        if (run_in_pool != NULL)
            memcpy(library, names.paths[i], sizeof library);
    }
}
#else
static void look_up(void)
{
}
#endif

const char *find_pool(void)
{
    if (run_in_pool == NULL)
        look_up();
    return run_in_pool == NULL ? NULL : library;
}

void in_parallel(void (*work)(void *), void *data, int32_t threads)
{
    if (threads > 1 && run_in_pool != NULL)
        run_in_pool(work, data, (unsigned)threads, 0);
    else
        work(data);
}
