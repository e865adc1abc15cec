/* Which instruction set serves: the best that the processor has and the operator allows. */
#define _GNU_SOURCE
#include "packed.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
#endif

#if defined(__x86_64__)
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

/* Tiles are state that Linux keeps for a process only once it has asked for it. */
static int has_amx(void)
{
#if defined(WITH_AMX) && defined(__linux__)
    uint32_t a, b, c, d = 0;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    const uint32_t needed = 1u << 22 | 1u << 24 | 1u << 25; /* bfloat16, tiles, int8 */
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && (d & needed) == needed &&
           syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
#else
    return 0;
#endif
}
#endif

static int always(void)
{
    return 1;
}

static const struct instructions SETS[] = {
    {"plain", always, write_plain, attend_plain, &kernels_plain},
#if defined(__x86_64__)
    {"avx2", has_avx2, write_avx2, attend_avx2, &kernels_avx2},
    {"avx512", has_avx512, write_avx512, attend_avx512, &kernels_avx512},
#if defined(WITH_AMX)
    {"amx", has_amx, write_avx512, attend_avx512, &kernels_amx},
#endif
#endif
};

const char *const INSTRUCTION_SETS = "plain, avx2, avx512 or amx";
static const struct instructions *chosen;

int choose_instructions(const char *most)
{
    int last = (int)(sizeof SETS / sizeof *SETS) - 1;
    if (most != NULL && *most != 0 && strcmp(most, "amx")) {
        while (last >= 0 && strcmp(SETS[last].name, most))
            last--;
        if (last < 0) {
#if defined(__x86_64__)
            return -1;
#else
            last = 0;
#endif
        }
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    while (!SETS[last].here())
        last--;
    chosen = &SETS[last];
    return 0;
}

const struct instructions *best(void)
{
    return chosen;
}
