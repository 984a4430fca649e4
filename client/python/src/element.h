/* Types of elements. */
#ifndef GPUBUFD_ELEMENT_H
#define GPUBUFD_ELEMENT_H

#include "client/python/src/core.h"

struct element {
    char format;      /* of the struct module; 0: none */
    uint8_t code;     /* DLPack's type code; 255: none */
    uint8_t bits;     /* fewer than 8: packed, and seen as the bytes that they fill */
    bool plain;       /* a number: what the bytes are is all there is to it */
    char typestr[16]; /* NumPy's, for what has one; "" otherwise */
};

/* Elements of a dtype of the protocol; false if an element is not a number of whole bytes. */
bool element_of_dtype(const char *dtype, struct element *element);
/* Bytes from one item of a view to the next: an element, or a byte of packed ones. */
Py_ssize_t element_item(const struct element *element);
/* Elements of DLPack's type and their dtype in the protocol. */
bool element_of_dlpack(uint8_t code, uint8_t bits, struct element *element, const char **dtype);

#endif
