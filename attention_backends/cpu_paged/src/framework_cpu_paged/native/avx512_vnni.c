/* Linear maps for processors with avx512vnni besides. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")
#endif
#define PAGED_AVX512
#define PACKED_VNNI
#define SUFFIX(name) name##_avx512_vnni
#include "linear.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
