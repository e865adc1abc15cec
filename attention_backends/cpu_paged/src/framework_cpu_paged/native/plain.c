/* The kernels for processors with nothing special. */
#define SUFFIX(name) name##_plain
#include "attend.h"
#include "linear.h"
