/* Types of elements. */
#ifndef GPUBUFD_ELEMENT_H
#define GPUBUFD_ELEMENT_H

#include "client/python/src/core.h"

struct element {
    char format;      /* of the struct module; 0: none */
    uint8_t code;     /* DLPack's type code; 255: none */
    uint8_t bits;     /* fewer than 8: packed, and seen as bytes */
    bool plain;       /* a number, with no unit, zone or scale */
    char typestr[16]; /* NumPy's; "": it has none */
};

/* The element of a dtype of the protocol; false: its elements have no fixed number of bytes. */
bool element_of_dtype(const char *dtype, struct element *element);
/* Bytes from one item of a view to the next: an element, or a byte of packed ones. */
Py_ssize_t element_item(const struct element *element);
/* The element of a type of DLPack, and its dtype in the protocol; false: there is none. */
bool element_of_dlpack(uint8_t code, uint8_t bits, struct element *element, const char **dtype);

/* dtypes(): the protocol's table, (name, bits of an element, bytes of an offset,
   NumPy's typestr, safetensors' name) for each type. */
PyObject *core_dtypes(PyObject *module, PyObject *none);
/* dtype_of(format): the dtype for one of Arrow's formats; None: there is none. */
PyObject *core_dtype_of(PyObject *module, PyObject *format);
/* format_of(dtype): the other way. TypeError: there is none, as for a dictionary. */
PyObject *core_format_of(PyObject *module, PyObject *dtype);

#endif
