/* Linear maps for processors with tiles (AMX). */
#include "paged.h"
#if defined(__x86_64__) && defined(WITH_AMX)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c,avx512bf16,amx-tile,amx-bf16,amx-int8"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c,avx512bf16,amx-tile,amx-bf16,amx-int8")
#endif
#define PAGED_AVX512
#define PACKED_AMX
#define SUFFIX(name) name##_amx
#include "linear.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
