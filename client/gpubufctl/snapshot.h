/*
 * The content of objects in files: what `gpubufctl save` writes and `load` reads. A file has an
 * object's buffers one after the other (of each column its mask, offsets and data, then its
 * children), each from a multiple of 64 bytes on. Its layout is written as `create` of the protocol
 * takes it, and for each buffer there is a checksum, XXH3 of 64 bits in hexadecimal.
 *
 * Content goes through in pieces, whatever device it is on. Not thread-safe.
 */
#ifndef GB_SNAPSHOT_H
#define GB_SNAPSHOT_H

#include <cjson/cJSON.h>

#include "gpubuf.h"
#include "proto/errors.h"
#include "proto/layout.h"
#include "term.h"

/* A file that content is written to or read from. */
struct gb_snapshot_file {
    int fd;
    const char *path; /* for messages */
    uint64_t done;    /* bytes of buffers written or read so far, of all files */
    struct gb_progress *progress;
    const volatile int *stop; /* a signal's number, after which everything fails; or NULL */
};

/*
 * Writes the object's content. `layout` is the object's as `stat` tells it (form REPLY) and becomes
 * the layout of what is in the file; the checksums are appended to the array `sums`.
 * GPUBUF_E_SYSTEM, GPUBUF_E_INVALID for memory that makes no sense, what the library says.
 */
int gb_snapshot_write(struct gb_snapshot_file *file, struct gpubuf_object *object,
                      struct gb_layout *layout, cJSON *sums, struct gb_error *error);

/* Reads a text that gb_layout_write made in form CREATE. GPUBUF_E_INVALID. */
int gb_snapshot_layout(const char *text, struct gb_pool *pool, struct gb_layout *layout,
                       struct gb_error *error);

/* Creates an object of a layout that gb_snapshot_layout read. */
int gb_snapshot_create(struct gpubuf_client *client, const char *name,
                       const struct gb_layout *layout, const struct gpubuf_create_options *options,
                       struct gb_pool *pool, struct gpubuf_object **object);

/* Fills it. GPUBUF_E_INVALID, with the place, for a file that is cut short, goes on, or has another
   checksum than `sums` tell. */
int gb_snapshot_read(struct gb_snapshot_file *file, struct gpubuf_object *object,
                     const struct gb_layout *layout, const cJSON *sums, struct gb_error *error);

/* The checksum of a text, as it is written in a snapshot. */
#define GB_SNAPSHOT_SUM 17
void gb_snapshot_sum(const char *text, char sum[GB_SNAPSHOT_SUM]);

#endif
