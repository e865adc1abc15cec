/* The kernels for processors with avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#endif
#define PAGED_AVX512
#define SUFFIX(name) name##_avx512
#include "attend.h"
#include "linear.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
