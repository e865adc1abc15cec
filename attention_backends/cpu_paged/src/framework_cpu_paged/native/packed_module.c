/* Packed weights and what computes with them, for Python.  Addresses come as integers: whoever
 * calls keeps their owners alive, as long as a capsule is that was made with them. */
#include "module.h"
#include "packed.h"

#include <stdlib.h>
#include <string.h>

const char PACKED[] = "framework_cpu_paged.packed";
static const char ENTRY[] = "framework_cpu_paged.entry", LEAVE[] = "framework_cpu_paged.leave";

static void free_packed_capsule(PyObject *capsule)
{
    free_packed(PyCapsule_GetPointer(capsule, PACKED));
}

static void free_entry(PyObject *capsule)
{
    free(PyCapsule_GetPointer(capsule, ENTRY));
}

static void free_leave(PyObject *capsule)
{
    free(PyCapsule_GetPointer(capsule, LEAVE));
}

static PyObject *py_pack(PyObject *self, PyObject *args)
{
    Py_ssize_t bias;
    int outputs, inputs, dtype, lossless;
    struct packed *packed;
    (void)self;
    if (!PyArg_ParseTuple(args, "iinii:pack", &outputs, &inputs, &bias, &dtype, &lossless))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    packed = make_packed(outputs, inputs, (const float *)bias, dtype, lossless);
    Py_END_ALLOW_THREADS
    if (packed == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(packed, PACKED, free_packed_capsule);
    if (capsule == NULL)
        free_packed(packed);
    return capsule;
}

static PyObject *py_fill(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t weights, stride;
    int first, count, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onniii:fill", &capsule, &weights, &stride, &first, &count, &threads))
        return NULL;
    struct packed *packed = PyCapsule_GetPointer(capsule, PACKED);
    if (packed == NULL)
        return NULL;
    if (first < 0 || count < 0 || first % packed->width || count > packed->outputs - first ||
        ((first + count) % packed->width && first + count != packed->outputs))
        return PyErr_Format(PyExc_IndexError, "outputs %d to %d of %d, in panels of %d", first,
                            first + count, packed->outputs, packed->width);
    Py_BEGIN_ALLOW_THREADS
    fill_packed(packed, (const float *)weights, stride, first, count, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_fits(PyObject *self, PyObject *args)
{
    Py_ssize_t values, count;
    int fits;
    (void)self;
    if (!PyArg_ParseTuple(args, "nn:fits_bfloat16", &values, &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    fits = fits_bfloat16((const float *)values, count);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(fits);
}

static PyObject *py_bytes(PyObject *self, PyObject *capsule)
{
    struct packed *packed = PyCapsule_GetPointer(capsule, PACKED);
    (void)self;
    return packed == NULL ? NULL : PyLong_FromLongLong(packed_bytes(packed));
}

static PyObject *py_unpack(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t ids, count, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onnn:unpack", &capsule, &ids, &count, &out))
        return NULL;
    const struct packed *packed = PyCapsule_GetPointer(capsule, PACKED);
    if (packed == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = ((const int64_t *)ids)[i];
        if (row < 0 || row >= packed->outputs) {
            PyErr_Format(PyExc_IndexError, "row %lld of %d", (long long)row, packed->outputs);
            return NULL;
        }
        best()->kernels->unpack(packed, row, (float *)out + i * packed->inputs);
    }
    Py_RETURN_NONE;
}

static PyObject *py_multiply(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t x, stride, out;
    int rows, threads, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onnini:multiply", &capsule, &x, &stride, &rows, &out, &threads))
        return NULL;
    struct product product = {.packed = PyCapsule_GetPointer(capsule, PACKED), .x = (const float *)x,
                              .x_stride = stride, .out = (float *)out, .rows = rows};
    if (product.packed == NULL)
        return NULL;
    product.out_stride = product.packed->outputs;
    Py_BEGIN_ALLOW_THREADS
    failed = run_product(&product, threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* "O&" of a norm: (address of weights or 0, offset, eps). */
static int read_norm(PyObject *from, void *to)
{
    struct norm *norm = to;
    Py_ssize_t weight;
    if (!PyArg_ParseTuple(from, "nff:norm", &weight, &norm->offset, &norm->eps))
        return 0;
    norm->weight = (const float *)weight;
    return 1;
}

int read_packed(PyObject *from, void *to)
{
    *(const struct packed **)to = PyCapsule_GetPointer(from, PACKED);
    return *(const struct packed **)to != NULL;
}

static PyObject *keep(const void *made, size_t size, const char *name, PyCapsule_Destructor end)
{
    void *own = malloc(size);
    if (own == NULL)
        return PyErr_NoMemory();
    memcpy(own, made, size);
    PyObject *capsule = PyCapsule_New(own, name, end);
    if (capsule == NULL)
        free(own);
    return capsule;
}

static PyObject *py_entry(PyObject *self, PyObject *args)
{
    struct entry made;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&O&iii:entry", read_packed, &made.linear, read_norm, &made.norm,
                          read_norm, &made.query_norm, read_norm, &made.key_norm, &made.heads,
                          &made.kv_heads, &made.head_size))
        return NULL;
    return keep(&made, sizeof made, ENTRY, free_entry);
}

static PyObject *py_leave(PyObject *self, PyObject *args)
{
    struct leave made;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&i:leave", read_packed, &made.output, read_packed,
                          &made.gate_up, read_packed, &made.down, read_norm, &made.attention_norm,
                          read_norm, &made.norm, read_norm, &made.mlp_norm, &made.activation))
        return NULL;
    return keep(&made, sizeof made, LEAVE, free_leave);
}

static PyObject *py_run_entry(PyObject *self, PyObject *args)
{
    PyObject *capsule, *updates = NULL;
    Py_ssize_t x, stride, cosines, sines, out;
    int rows, threads, failed;
    struct entry_uses uses = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "Onnnnnii|O:run_entry", &capsule, &x, &stride, &cosines, &sines,
                          &out, &rows, &threads, &updates))
        return NULL;
    const struct entry *entry = PyCapsule_GetPointer(capsule, ENTRY);
    if (entry == NULL)
        return NULL;
    if (updates != NULL && read_uses(updates, rows, entry->linear, &uses.linear) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = run_entry(entry, (const float *)x, stride, (const float *)cosines, (const float *)sines,
                       (float *)out, rows, &uses, threads);
    Py_END_ALLOW_THREADS
    free_uses(&uses.linear);
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_run_leave(PyObject *self, PyObject *args)
{
    PyObject *capsule, *of_output = NULL, *of_gate_up = NULL, *of_down = NULL;
    Py_ssize_t attended, attended_stride, x, stride, out;
    int rows, threads, failed = 1;
    struct leave_uses uses = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "Onnnnnii|OOO:run_leave", &capsule, &attended, &attended_stride, &x,
                          &stride, &out, &rows, &threads, &of_output, &of_gate_up, &of_down))
        return NULL;
    const struct leave *leave = PyCapsule_GetPointer(capsule, LEAVE);
    if (leave == NULL)
        return NULL;
    if (of_down == NULL || (read_uses(of_output, rows, leave->output, &uses.output) == 0 &&
                            read_uses(of_gate_up, rows, leave->gate_up, &uses.gate_up) == 0 &&
                            read_uses(of_down, rows, leave->down, &uses.down) == 0)) {
        Py_BEGIN_ALLOW_THREADS
        failed = run_leave(leave, (const float *)attended, attended_stride, (const float *)x, stride,
                           (float *)out, rows, &uses, threads);
        Py_END_ALLOW_THREADS
    }
    free_uses(&uses.output);
    free_uses(&uses.gate_up);
    free_uses(&uses.down);
    if (PyErr_Occurred())
        return NULL;
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyMethodDef packed_methods[] = {
    {"pack", py_pack, METH_VARARGS,
     "pack(outputs, inputs, bias, dtype, lossless): room for packed weights."},
    {"fill", py_fill, METH_VARARGS,
     "fill(packed, weights, stride, first, count, threads): pack those of outputs from `first` on."},
    {"fits_bfloat16", py_fits, METH_VARARGS,
     "fits_bfloat16(values, count): whether bfloat16 holds all these float32 exactly."},
    {"packed_bytes", py_bytes, METH_O, "packed_bytes(packed): of its weights."},
    {"unpack", py_unpack, METH_VARARGS, "unpack(packed, ids, count, out): rows of the weights."},
    {"multiply", py_multiply, METH_VARARGS, "multiply(packed, x, x_stride, rows, out, threads)"},
    {"entry", py_entry, METH_VARARGS,
     "entry(linear, norm, query_norm, key_norm, heads, kv_heads, head_size), a norm being (address\n"
     "of its weights or 0, offset, eps): what stands before attention."},
    {"leave", py_leave, METH_VARARGS,
     "leave(output, gate_up, down, attention_norm, norm, mlp_norm, activation): what stands behind\n"
     "attention."},
    {"run_entry", py_run_entry, METH_VARARGS,
     "run_entry(entry, x, x_stride, cosines, sines, out, rows, threads[, updates])"},
    {"run_leave", py_run_leave, METH_VARARGS,
     "run_leave(leave, attended, attended_stride, x, x_stride, out, rows, threads[, updates of\n"
     "output, of gate_up, of down])"},
    {NULL, NULL, 0, NULL},
};
