/* The kernels for Python.  Addresses come as integers: whoever calls keeps their owners alive. */
#include "module.h"
#include "paged.h"

#include <stdlib.h>

static const char NAME[] = "framework_cpu_paged.plan";

static void free_capsule(PyObject *capsule)
{
    free_plan(PyCapsule_GetPointer(capsule, NAME));
}

static PyObject *py_plan(PyObject *self, PyObject *args)
{
    struct plan *plan = calloc(1, sizeof *plan);
    Py_ssize_t starts, lengths, table, slots;
    (void)self;
    if (plan == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "iinnnLnp:plan", &plan->rows, &plan->tokens, &starts, &lengths,
                          &table, &plan->table_stride, &slots, &plan->causal)) {
        free(plan);
        return NULL;
    }
    plan->starts = (const int32_t *)starts;
    plan->lengths = (const int32_t *)lengths;
    plan->table = (const int32_t *)table;
    plan->slots = (const int64_t *)slots;
    PyObject *capsule = PyCapsule_New(plan, NAME, free_capsule);
    if (capsule == NULL)
        free_plan(plan);
    return capsule;
}

static PyObject *py_run(PyObject *self, PyObject *args)
{
    struct layer layer;
    PyObject *capsule;
    Py_ssize_t q, k, v, cache, out, sinks, slopes;
    int threads, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "O(nnnnn)(LLLL)(iiiiiii)(iiiffnn)i:run", &capsule, &q, &k, &v,
                          &cache, &out, &layer.q_stride, &layer.k_stride, &layer.v_stride,
                          &layer.page_stride, &layer.dtype, &layer.cache_dtype, &layer.heads,
                          &layer.kv_heads, &layer.head_size, &layer.head_size_v,
                          &layer.page_tokens, &layer.window, &layer.chunk, &layer.sink_tokens,
                          &layer.scale, &layer.softcap, &sinks, &slopes, &threads))
        return NULL;
    struct plan *plan = PyCapsule_GetPointer(capsule, NAME);
    if (plan == NULL)
        return NULL;
    layer.q = (const void *)q;
    layer.k = (const void *)k;
    layer.v = (const void *)v;
    layer.cache = (char *)cache;
    layer.out = (void *)out;
    layer.sinks = (const float *)sinks;
    layer.slopes = (const float *)slopes;
    Py_BEGIN_ALLOW_THREADS
    failed = run_layer(plan, &layer, threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_choose(PyObject *self, PyObject *args)
{
    const char *most;
    (void)self;
    if (!PyArg_ParseTuple(args, "z:choose_instructions", &most))
        return NULL;
    if (choose_instructions(most) < 0)
        return PyErr_Format(PyExc_ValueError, "instruction set: expected %s, found %s",
                            INSTRUCTION_SETS, most);
    return PyUnicode_FromString(best()->name);
}

static PyObject *py_set(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyUnicode_FromString(best()->name);
}

static PyMethodDef methods[] = {
    {"choose_instructions", py_choose, METH_VARARGS,
     "choose_instructions(most): the best that is here, up to that one, or None; its name.  What was\n"
     "packed for another must not be used any more."},
    {"instruction_set", py_set, METH_NOARGS, "instruction_set(): the name of the one in use."},
    {"plan", py_plan, METH_VARARGS,
     "plan(rows, tokens, starts, lengths, table, table_stride, slots, causal): a step's metadata."},
    {"run", py_run, METH_VARARGS,
     "run(plan, (q, k, v, cache, out), (q_stride, k_stride, v_stride, page_stride), (dtype,\n"
     "cache_dtype, heads, kv_heads, head_size, head_size_v, page_tokens), (window, chunk,\n"
     "sink_tokens, scale, softcap, sinks, slopes), threads)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Attention over pages of a KV cache, in C.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    const char *most = getenv("FRAMEWORK_CPU_INSTRUCTIONS");
    if (choose_instructions(most) < 0)
        return PyErr_Format(PyExc_ImportError, "FRAMEWORK_CPU_INSTRUCTIONS: expected %s, found %s",
                            INSTRUCTION_SETS, most);
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddFunctions(module, packed_methods) < 0 ||
        PyModule_AddFunctions(module, low_rank_methods) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    PyModule_AddIntConstant(module, "part_tokens", PART);
    PyModule_AddIntConstant(module, "most_heads", TILE);
    const char *pool = find_pool();
    if (PyModule_AddStringConstant(module, "pool_library", pool == NULL ? "" : pool) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
