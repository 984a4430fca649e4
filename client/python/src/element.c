#include "client/python/src/element.h"

#include <string.h>

#include "proto/layout/dtype.h"

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6, DL_NONE = 255 };

/* The struct module's letter, where memoryview and NumPy agree on it; for floats that NumPy lacks
   that of integers of the same width, so that numpy.asarray() has their bits and no strings. l is
   NumPy's int64 itself; of q it makes a type that is equal to it, and that zarr does not know. */
static char letter_of(const struct gb_type_info *info)
{
    unsigned power = info->bits <= 8 ? 0 : info->bits == 16 ? 1 : info->bits == 32 ? 2 : 3;

    switch (info->dlpack_code) {
    case DL_BOOL:
        return '?';
    case DL_INT:
        return "bhil"[power];
    case DL_FLOAT:
        return "?efd"[power];
    case DL_COMPLEX:
        return info->bits == 64 ? 'F' : 'D';
    default:
        return "BHIL"[power];
    }
}

/* A number of the protocol is what DLPack has a code for. */
static bool number_of(const struct gb_type_info *info, struct element *element)
{
    if (info->dlpack_code == DL_NONE)
        return false;
    *element = (struct element){
        .format = letter_of(info),
        /* of 6 bits: no consumer packs alike */
        .code = info->bits == 6 ? DL_NONE : info->dlpack_code,
        .bits = (uint8_t)info->bits,
        .plain = true,
    };
    if (info->numpy)
        strcpy(element->typestr, info->numpy);
    return true;
}

bool element_of_dtype(const char *dtype, struct element *element)
{
    struct gb_dtype parsed;

    *element = (struct element){.format = 0};
    if (!gb_dtype_parse(dtype, strlen(dtype), &parsed))
        return false;
    const struct gb_type_info *info = gb_type_info(parsed.type);
    if (number_of(info, element))
        return true;
    bool time = parsed.unit != GB_UNIT_NONE || parsed.type == GB_TYPE_DATE32 ||
                parsed.type == GB_TYPE_DATE64;
    if (!time)
        return false; /* bits, strings, nested, decimals, intervals, fixed_binary */
    *element = (struct element){
        .format = info->bits == 64 ? 'l' : 'i', .code = DL_INT, .bits = (uint8_t)info->bits};
    if (parsed.type == GB_TYPE_DATE64)
        strcpy(element->typestr, "<M8[ms]");
    else
        (void)gb_dtype_to_numpy(&parsed, element->typestr, sizeof(element->typestr));
    return true;
}

Py_ssize_t element_item(const struct element *element)
{
    return element->bits < 8 ? 1 : element->bits / 8;
}

bool element_of_dlpack(uint8_t code, uint8_t bits, struct element *element, const char **dtype)
{
    for (int type = 0; type < GB_TYPE_COUNT; type++) {
        const struct gb_type_info *info = gb_type_info((enum gb_type)type);
        if (number_of(info, element) && element->code == code && element->bits == bits &&
            code != DL_NONE) {
            *dtype = info->name;
            return true;
        }
    }
    return false;
}

PyObject *core_dtypes(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    PyObject *rows = PyTuple_New(GB_TYPE_COUNT);

    for (int type = 0; rows && type < GB_TYPE_COUNT; type++) {
        const struct gb_type_info *info = gb_type_info((enum gb_type)type);
        PyObject *row = Py_BuildValue("(siizz)", info->name, info->bits, info->offset_bytes,
                                      info->numpy, info->safetensors);
        if (!row || PyTuple_SetItem(rows, type, row) < 0) {
            Py_DECREF(rows);
            return NULL;
        }
    }
    return rows;
}

PyObject *core_dtype_of(PyObject *module, PyObject *format)
{
    char text[64];
    const char *arrow;
    struct gb_dtype dtype;

    (void)module;
    if (!PyArg_Parse(format, "s;a format is a str", &arrow))
        return NULL;
    if (!gb_dtype_from_arrow(arrow, &dtype))
        return new_ref(Py_None);
    return PyUnicode_FromStringAndSize(text,
                                       (Py_ssize_t)gb_dtype_format(&dtype, text, sizeof(text)));
}

PyObject *core_format_of(PyObject *module, PyObject *dtype)
{
    char format[64];
    const char *text;
    struct gb_dtype parsed;

    (void)module;
    if (!PyArg_Parse(dtype, "s;a dtype is a str", &text))
        return NULL;
    if (!gb_dtype_parse(text, strlen(text), &parsed) ||
        !gb_dtype_to_arrow(&parsed, format, sizeof(format)))
        return PyErr_Format(PyExc_TypeError, "Arrow has no %s", text);
    return PyUnicode_FromString(format);
}
