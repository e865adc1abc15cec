/* Low-rank updates, for Python. */
#include "module.h"

#include <stdlib.h>

static const char UPDATE[] = "framework_cpu_paged.low_rank";

static void free_update(PyObject *capsule)
{
    free(PyCapsule_GetPointer(capsule, UPDATE));
}

static PyObject *py_low_rank(PyObject *self, PyObject *args)
{
    const struct packed *down;
    PyObject *parts;
    int outputs;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&iO!:low_rank", read_packed, &down, &outputs, &PyTuple_Type, &parts))
        return NULL;
    const Py_ssize_t count = PyTuple_Size(parts);
    struct low_rank *made = malloc(sizeof *made + sizeof *made->ups * (size_t)count);
    if (made == NULL)
        return PyErr_NoMemory();
    *made = (struct low_rank){.down = down, .outputs = outputs, .count = (int32_t)count};
    for (Py_ssize_t i = 0; i < count; i++) {
        struct up *up = &made->ups[i];
        int read = PyArg_ParseTuple(PyTuple_GetItem(parts, i), "O&ii:low_rank", read_packed,
                                    &up->packed, &up->from, &up->to);
        int fits = read && up->from >= 0 && up->to >= 0 &&
                   up->from + up->packed->inputs <= down->outputs &&
                   up->to + up->packed->outputs <= outputs;
        if (!fits) {
            if (read)
                PyErr_SetString(PyExc_ValueError, "a part lies outside of the update");
            free(made);
            return NULL;
        }
    }
    PyObject *capsule = PyCapsule_New(made, UPDATE, free_update);
    if (capsule == NULL)
        free(made);
    return capsule;
}

static int read_use(PyObject *from, int32_t rows, struct applied *use)
{
    PyObject *capsule;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(from, "Oni:use", &capsule, &at, &use->rows))
        return -1;
    use->update = PyCapsule_GetPointer(capsule, UPDATE);
    if (use->update == NULL)
        return -1;
    use->at = (const int64_t *)at;
    if (at == 0 && use->rows > rows) {
        PyErr_Format(PyExc_IndexError, "%d rows of %d", use->rows, rows);
        return -1;
    }
    for (int row = 0; at != 0 && row < use->rows; row++)
        if (use->at[row] < 0 || use->at[row] >= rows) {
            PyErr_Format(PyExc_IndexError, "row %lld of %d", (long long)use->at[row], rows);
            return -1;
        }
    return 0;
}

/* inputs, outputs: of the map; 0 for those of the first update. */
static int read_all(PyObject *from, int32_t rows, int32_t inputs, int32_t outputs, struct uses *to)
{
    if (!PyTuple_Check(from)) {
        PyErr_SetString(PyExc_TypeError, "updates: expected a tuple");
        return -1;
    }
    *to = (struct uses){.count = (int32_t)PyTuple_Size(from)};
    to->of = malloc(sizeof *to->of * (size_t)to->count + 1);
    if (to->of == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < to->count; i++) {
        if (read_use(PyTuple_GetItem(from, i), rows, &to->of[i]) < 0)
            goto failed;
        const struct low_rank *update = to->of[i].update;
        inputs = inputs ? inputs : update->down->inputs;
        outputs = outputs ? outputs : update->outputs;
        if (update->down->inputs != inputs || update->outputs != outputs) {
            PyErr_Format(PyExc_ValueError, "an update of %d inputs and %d outputs; expected %d and %d",
                         update->down->inputs, update->outputs, inputs, outputs);
            goto failed;
        }
    }
    return 0;
failed:
    free_uses(to);
    return -1;
}

int read_uses(PyObject *from, int32_t rows, const struct packed *linear, struct uses *to)
{
    return read_all(from, rows, linear->inputs, linear->outputs, to);
}

static PyObject *py_run_low_ranks(PyObject *self, PyObject *args)
{
    PyObject *list;
    struct uses uses;
    Py_ssize_t x, x_stride, y, y_stride;
    int threads, rows, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onnnnii:run_low_ranks", &list, &x, &x_stride, &y, &y_stride, &rows,
                          &threads))
        return NULL;
    if (read_all(list, rows, 0, 0, &uses) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = run_low_ranks(&uses, (const float *)x, x_stride, (float *)y, y_stride, threads);
    Py_END_ALLOW_THREADS
    free_uses(&uses);
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyMethodDef low_rank_methods[] = {
    {"low_rank", py_low_rank, METH_VARARGS,
     "low_rank(down, outputs, parts): an update, with parts of its second map as (packed weights,\n"
     "first column, first output); the owners of all must be kept."},
    {"run_low_ranks", py_run_low_ranks, METH_VARARGS,
     "run_low_ranks(updates, x, x_stride, y, y_stride, rows, threads): each a tuple (update, address\n"
     "of int64 rows or 0 for the first, how many), which is added to those of y's rows."},
    {NULL, NULL, 0, NULL},
};
