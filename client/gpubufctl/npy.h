/*
 * The header of .npy files
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), versions 1, 2 and 3:
 * read strictly, and written. Pure: works on bytes in memory.
 */
#ifndef GB_NPY_H
#define GB_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/errors.h"

#define GB_NPY_PREFIX 8 /* magic and version: what tells the length field's size */
#define GB_NPY_NDIM 32
#define GB_NPY_HEADER_MAX 65536u /* bytes of a header that are read; ours take 128 */

struct gb_npy {
    struct gb_dtype dtype;
    bool swap;    /* the file's byte order is not this machine's */
    bool fortran; /* first axis varies fastest */
    unsigned ndim;
    uint64_t shape[GB_NPY_NDIM];
    uint64_t count;        /* elements */
    uint64_t item_bytes;   /* of one element */
    uint64_t data_bytes;   /* count * item_bytes, below 2^52 */
    uint64_t header_bytes; /* where the data start */
};

/* Whether the bytes start as an .npy file does. */
bool gb_npy_is(const void *bytes, size_t length);

/*
 * How many bytes the header takes, prefix included, from the file's first bytes. 0 and *header, or
 * GPUBUF_E_INVALID. Twelve bytes suffice (or the whole file if it is shorter).
 */
int gb_npy_header_bytes(const void *bytes, size_t length, size_t *header, struct gb_error *error);

/* Reads the header, which must be there as a whole. GPUBUF_E_INVALID with what is wrong and where;
   GPUBUF_E_UNSUPPORTED for text, fields and other units of time: the file is valid, but no dtype
   here fits it. */
int gb_npy_read(const void *bytes, size_t length, struct gb_npy *npy, struct gb_error *error);

/* Reverses the bytes of each number in place, as npy->swap asks. `bytes` is whole elements. */
void gb_npy_swap(const struct gb_npy *npy, void *data, uint64_t bytes);

/*
 * Writes the header of a C-ordered array into `out`, which must have room for 64 + 24 * ndim + 128
 * bytes (GB_NPY_WRITE_MAX always suffices). Returns its length, a multiple of 64; 0 if NumPy has no
 * such dtype.
 */
#define GB_NPY_WRITE_MAX 1024
size_t gb_npy_write(const struct gb_dtype *dtype, const uint64_t *shape, unsigned ndim, char *out);

#endif
