/* What the files of the Python module share. */
#ifndef MODULE_H
#define MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "packed.h"

extern PyMethodDef packed_methods[], low_rank_methods[];
/* The name of a capsule of packed weights. */
extern const char PACKED[];

/* "O&" of packed weights. */
int read_packed(PyObject *from, void *to);

/* A tuple of (update, address of its rows or 0 for the first ones, how many), for a linear map of
 * `rows` rows.  Updates of other sizes and rows that it has not are an error.  0, and to be freed by
 * `free_uses`; or -1. */
int read_uses(PyObject *from, int32_t rows, const struct packed *linear, struct uses *to);

#endif
