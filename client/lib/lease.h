/*
 * Leases and objects. A lease is what the session holds on one object version: the daemon's number,
 * the layout, and the imports that its buffers lie in. Objects are what the program holds: the root
 * that an open or create gave it, and views made from it. Both are counted; the lease ends with the
 * last object.
 *
 * A lease, its root object and its layout lie in one allocation. Nothing but `version`, `state`,
 * `ready` and null counts (at seal) changes once it is made, so that reading needs no lock.
 */
#ifndef GB_LIB_LEASE_H
#define GB_LIB_LEASE_H

#include <stdatomic.h>

#include "internal.h"
#include "proto/layout.h"

struct gb_ready;
struct gb_gpu;

#define GB_NO_SEGMENT UINT64_MAX /* in a buffer of 0 bytes */

enum gb_lease_state {
    GB_LEASE_OPEN,    /* being written */
    GB_LEASE_SEALING, /* `seal` is under way */
    GB_LEASE_SEALED,
    GB_LEASE_ENDED, /* the daemon knows */
    GB_LEASE_STALE, /* it went with its connection */
};

/* Some columns of a table, shared by the views of them. What the columns point to is the lease's. */
struct gb_selection {
    _Atomic size_t references;
    struct gb_column table;     /* its children are copies */
    struct gb_column **origins; /* what they are copies of, in the lease's layout */
};

struct gpubuf_object {
    _Atomic size_t references;
    struct gb_lease *lease; /* each object but the root counts as a reference of it */
    enum gpubuf_kind kind;
    /* What it views: a column; the table's columns and length; of arrays and bytes data and mask.
       In the lease's layout, or in `selection`. */
    struct gb_column *column;
    struct gb_selection *selection; /* counted; NULL: all columns */
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

struct gb_lease_segment {
    struct gb_import *import;
    char *address;
};

struct gb_lease {
    _Atomic size_t references;     /* the root counts as one */
    struct gpubuf_client *client;  /* counted */
    struct gb_lease *next, **link; /* among the client's */
    struct gpubuf_object *root;
    uint64_t id;
    size_t slot;  /* while the client resumes: 1 and up in what it asks for; 0: it is not there */
    bool resumed; /* while the client resumes: the daemon has granted it anew */
    _Atomic uint64_t version;
    _Atomic int state; /* enum gb_lease_state */
    bool writable;     /* made by `create` */
    const char *name, *device;
    _Atomic(struct gb_ready *) ready; /* what to wait for before the content is there; or NULL */
    struct gb_layout layout;          /* its buffers' `segment` is an index into `segments` */
    struct gb_lease_segment *segments;
    size_t segment_count, segment_capacity;
    struct gb_pool pool;
};

/* ---- lease.c: leases out of replies; with the client's lock held ---- */

struct gb_failed_segment;

struct gb_grants {
    struct gpubuf_client *client;
    bool writable;
    bool dropped; /* an import was dropped since the request was sent */
    struct gb_failed_segment *failed;
};

#define GB_AGAIN 1 /* ask again: the reply relies on a segment that was unmapped meanwhile */

/*
 * Takes in the `segments` of a reply that grants at most `leases` leases. `drops` is
 * client->imports.drops from when the request was sent. Segments that cannot be mapped only fail
 * the leases that need them. GPUBUF_E_PROTOCOL; GPUBUF_E_NO_MEMORY, after which the connection must
 * be given up, since the daemon's account could not be kept.
 */
int gb_grants_begin(struct gb_grants *grants, struct gpubuf_client *client,
                    const struct gb_reply *reply, struct gb_json segments, size_t leases,
                    bool writable, uint64_t drops, struct gb_error *error);

/*
 * Makes a lease of an `object`. 0 and *out, GB_AGAIN, or a failure; but for success the lease has
 * been given back. GPUBUF_E_PROTOCOL, GPUBUF_E_NO_MEMORY, or why a segment could not be mapped.
 */
int gb_grants_take(struct gb_grants *grants, uint64_t lease, struct gb_json object,
                   struct gpubuf_object **out, struct gb_error *error);

/* Keeps the cache within its bounds. */
void gb_grants_end(struct gb_grants *grants);

/* As gpubuf_release, with the lock held. */
void gb_object_drop(struct gpubuf_object *object);

/* ---- object.c ---- */

/* Fills in the root object of a lease. */
void gb_object_init_root(struct gpubuf_object *object, struct gb_lease *lease);

/* Drops a reference; NULL is fine. */
void gb_selection_drop(struct gb_selection *selection);

/* Where a buffer lies here. */
void *gb_buffer_address(const struct gb_lease *lease, const struct gb_buffer *buffer);

/* Copies `bytes` bytes to `offset` in a buffer of an object being written. GPUBUF_E_PROTOCOL if
   they do not fit: the daemon gave less than it was asked for. Reports failures. */
int gb_buffer_write(const struct gb_lease *lease, const struct gb_buffer *buffer, uint64_t offset,
                    const void *from, uint64_t bytes);

/* The GPU that an object is on, NULL for the host. GPUBUF_E_UNSUPPORTED, GPUBUF_E_DEVICE. */
int gb_lease_gpu(const struct gb_lease *lease, struct gb_gpu **gpu, struct gb_error *error);

/* After gb_buffer_write: waits until what it queued is in the object. Reports failures. */
int gb_finish_writing(const struct gb_lease *lease);

/* How many of `length` bits from bit `offset` on are 1. */
uint64_t gb_count_bits(const unsigned char *bits, uint64_t offset, uint64_t length);

/* Whether calls on it make sense; else reported. GPUBUF_E_FORKED, GPUBUF_E_INVALID (NULL). */
int gb_object_check(const struct gpubuf_object *object);

/* ---- arrow_export.c ---- */

/* As gpubuf_export_arrow wherever the object is: buffers are pointers into its memory there. */
int gb_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                    struct ArrowArray *array);

/* ---- seal.c ---- */

/* Seals and ends the lease in one go; for what is put. Reports failures. */
int gb_seal_and_release(struct gpubuf_object *object);

/* ---- create.c ---- */

/* Writes ,"mode":… and so on as `options` (may be NULL, else checked) say. */
void gb_write_create_options(struct gb_writer *writer, const struct gpubuf_create_options *options);
/* Takes over the options of a program that may know fewer of them. */
int gb_read_create_options(const struct gpubuf_client *client,
                           const struct gpubuf_create_options *given,
                           struct gpubuf_create_options *options);

#endif
