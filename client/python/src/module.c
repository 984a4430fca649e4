/* The module gpubufd._core: core.h. */
#include <limits.h>

#include "client/python/src/arrow.h"
#include "client/python/src/arrow_stream.h"
#include "client/python/src/bits.h"
#include "client/python/src/bundle.h"
#include "client/python/src/follow.h"
#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/progress.h"
#include "client/python/src/text.h"
#include "client/python/src/view.h"
#include "proto/base/limits.h"
#include "proto/base/place.h"

static PyObject *core_set_error_factory(PyObject *module, PyObject *factory)
{
    (void)module;
    PyObject *before = error_factory;
    error_factory = new_ref(factory);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *core_address(PyObject *module, PyObject *exporter)
{
    (void)module;
    Py_buffer buffer;
    if (PyObject_GetBuffer(exporter, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = Py_BuildValue("(Nn)", PyLong_FromVoidPtr(buffer.buf), buffer.len);
    PyBuffer_Release(&buffer); /* the caller keeps the memory where it is */
    return result;
}

/* socket_path(path or None): where a Client of that path connects to. */
static PyObject *core_socket_path(PyObject *module, PyObject *args)
{
    (void)module;
    char buffer[PATH_MAX];
    const char *path;

    if (!PyArg_ParseTuple(args, "z:socket_path", &path))
        return NULL;
    return PyUnicode_DecodeFSDefault(gb_place_of_client(path, buffer, sizeof(buffer), NULL));
}

static PyMethodDef functions[] = {
    {"socket_path", core_socket_path, METH_VARARGS, NULL},
    {"set_error_factory", core_set_error_factory, METH_O, NULL},
    {"on_copied", core_on_copied, METH_O, NULL},
    {"set_kinds", core_set_kinds, METH_VARARGS, NULL},
    {"address", core_address, METH_O, NULL},
    {"itemsize", core_itemsize, METH_O, NULL},
    {"dtypes", core_dtypes, METH_NOARGS, NULL},
    {"dtype_of", core_dtype_of, METH_O, NULL},
    {"format_of", core_format_of, METH_O, NULL},
    {"read_stream", core_read_stream, METH_O, NULL},
    {"nodes", core_nodes, METH_VARARGS, NULL},
    {"capsules", core_capsules, METH_O, NULL},
    {"array_device", core_array_device, METH_O, NULL},
    {"check_manifest", core_check_manifest, METH_VARARGS, NULL},
    {"borrow_all", core_borrow_all, METH_VARARGS, NULL},
    {"plan_bundle", core_plan_bundle, METH_VARARGS, NULL},
    {"text_of", core_text_of, METH_VARARGS, NULL},
    {"text_of_views", core_text_of_views, METH_VARARGS, NULL},
    {"text_list", core_text_list, METH_VARARGS, NULL},
    {"count_nulls", core_count_nulls, METH_VARARGS, NULL},
    {"switch", core_switch, METH_VARARGS, NULL},
    {"park", core_park, METH_VARARGS, NULL},
    {"resume", core_resume, METH_VARARGS, NULL},
    {"is_parked", core_is_parked, METH_O, NULL},
    {"add_to_integers", core_add_to_integers, METH_VARARGS, NULL},
    {"is_even", core_is_even, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "gpubufd._core",
    "libgpubuf for Python.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

/* The code of each kind of error: E_INVALID and so on. */
static int add_errors(PyObject *module)
{
    int r = 0;

#define ADD_ERROR(name, code, kind, text) r |= PyModule_AddIntConstant(module, "E_" #name, code);
    GPUBUF_ERROR_MAP(ADD_ERROR)
#undef ADD_ERROR
    return r;
}

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (!module)
        return NULL;
    if (client_setup(module) < 0 || object_setup(module) < 0 || view_setup(module) < 0 ||
        pool_setup(module) < 0 || fill_setup(module) < 0 || exchange_setup(module) < 0 ||
        stream_setup(module) < 0 ||
        PyModule_AddStringConstant(module, "version", gpubuf_version()) < 0 ||
        PyModule_AddIntConstant(module, "COLUMNS", GB_LIMIT(columns)) < 0 ||
        add_errors(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
