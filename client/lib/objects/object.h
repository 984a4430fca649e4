/*
 * Objects: what the program holds of a lease. The root views all of it, others a column, a slice,
 * some columns of a table. They are counted. Nothing of an object changes once it is made, but for
 * null counts at the seal: any thread.
 */
#ifndef GB_LIB_OBJECT_H
#define GB_LIB_OBJECT_H

#include "client/lib/objects/lease.h"

/* Viewed layouts that are no part of the lease's layout, shared by their views: some columns of a
   table, or an array of a bundle. The columns' buffers are the lease's. */
struct gb_selection {
    _Atomic size_t references;
    struct gb_column column;    /* of a table its children are copies */
    struct gb_column **origins; /* what they are copies of, in the lease's layout */
    void *copy;                 /* of an array: its content, where that is not the lease's memory */
    int64_t strides[];          /* of an array */
};

struct gpubuf_object {
    _Atomic size_t references;
    struct gb_client_lease *lease; /* each object but the root counts as a reference of it */
    enum gpubuf_kind kind;
    /* The viewed part: a column; the table's columns and length; of arrays and bytes data and mask.
       In the lease's layout, or in `selection`. */
    struct gb_column *column;
    struct gb_selection *selection; /* counted; NULL: what the layout has */
    uint64_t offset; /* columns: in elements, from the buffers' start. Tables: rows, relative to the
                        columns' own offsets. Arrays: the first element's bit in the mask. */
    uint64_t length;
    int64_t null_count;
    bool whole;      /* not a slice: the null count is the column's, which sealing may change */
    uint64_t start;  /* arrays and bytes: where the view begins, in bytes from the buffer's start */
    uint64_t extent; /* and how many bytes it spans */
    unsigned ndim;
    const uint64_t *shape;
    const int64_t *strides;
    int64_t stride; /* what `strides` points to where there is one axis and no array */
    const char *dtype;
    char dtype_text[64];  /* what `dtype` points to where the type has parameters */
    uint64_t own_shape[]; /* views of arrays */
};

/* Fills in the root object of a lease. */
void gb_object_init_root(struct gpubuf_object *object, struct gb_client_lease *lease);

/* A view of an array that lies `start` bytes into the lease's one buffer, aligned, in C order; or
   into `copy`, which is the view's from here on, after a failure too. */
int gb_object_array(struct gb_client_lease *lease, const struct gb_dtype *dtype, unsigned ndim,
                    const uint64_t *shape, uint64_t start, void *copy,
                    struct gpubuf_object **array);

struct gb_manifest;

/* Copies the first bytes of a bundle, and reads them (bundle.c). The first reports failures. */
int gb_bundle_copy_head(struct gpubuf_object *object, uint64_t bytes, unsigned char **head);
int gb_bundle_read_head(const struct gb_layout *layout, const unsigned char *head,
                        struct gb_manifest *manifest, struct gb_error *error);

/* Where the data of an array or of bytes lies here, from which `start` counts. */
char *gb_object_data(const struct gpubuf_object *object);

/* Drops a reference; NULL is fine. */
void gb_selection_drop(struct gb_selection *selection);

/* Where a buffer lies here. */
void *gb_buffer_address(const struct gb_client_lease *lease, const struct gb_buffer *buffer);

/* Copies `bytes` bytes to `offset` in a buffer of an object being written. GPUBUF_E_PROTOCOL if
   they do not fit: the daemon gave less than it was asked for. Reports failures. */
int gb_buffer_write(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                    uint64_t offset, const void *from, uint64_t bytes);

/* The same for bits [start, start + length) of `bits`, which begin the buffer. */
int gb_buffer_write_bits(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                         const unsigned char *bits, uint64_t start, uint64_t length);

/* How many of `length` bits from bit `offset` on are 1. */
uint64_t gb_count_bits(const unsigned char *bits, uint64_t offset, uint64_t length);

/* Checks that the object may be used here. Reports GPUBUF_E_FORKED, GPUBUF_E_INVALID (NULL). */
int gb_object_check(const struct gpubuf_object *object);

#endif
