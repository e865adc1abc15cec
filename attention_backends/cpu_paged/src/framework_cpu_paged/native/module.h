/* What the files of the Python module share. */
#ifndef MODULE_H
#define MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef packed_methods[];

#endif
