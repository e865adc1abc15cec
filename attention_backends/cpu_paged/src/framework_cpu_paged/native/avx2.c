/* The kernels for processors with avx2,fma,f16c. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define PAGED_AVX2
#define SUFFIX(name) name##_avx2
#include "attend.h"
#include "linear.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
