/*
 * The content of an object as one stretch of bytes, which is sent from machine to machine: its
 * buffers one after the other (of each column its mask, offsets and data, then its children),
 * without gaps. It is sent in chunks of GB_PEER_CHUNK bytes; the last one is shorter. The content
 * of a slice is what the slice shows. An array is in C order.
 *
 * Sums are XXH3 of 64 bits. The sum of the whole content is the sum of its chunks' sums, which are
 * little-endian and in order.
 *
 * A content holds the object, so it outlives the caller's own reference. Not thread-safe.
 */
#ifndef GB_PEER_CONTENT_H
#define GB_PEER_CONTENT_H

#include "client/lib/objects/pinned.h"
#include "gpubuf.h"
#include "proto/base/limits.h"
#include "proto/layout/layout.h"

#define GB_PEER_CHUNK ((uint64_t)1 << 20)

struct gb_peer_part;

struct gb_peer_content {
    struct gb_peer_part *parts;
    size_t count, room;
    uint64_t bytes;
};

/*
 * The content that a sealed object shows. `layout` is its own as `stat` tells it (form REPLY), and
 * becomes that of the content (form CREATE). GPUBUF_E_INVALID for memory that makes no sense,
 * GPUBUF_E_UNSUPPORTED for an array that is not in C order; else the library's code.
 */
int gb_peer_content_of(struct gb_peer_content *content, struct gpubuf_object *object,
                       struct gb_layout *layout, struct gb_error *error);

/* The content of an object being written, which was created with `layout`. */
int gb_peer_content_for(struct gb_peer_content *content, struct gpubuf_object *object,
                        const struct gb_layout *layout, struct gb_error *error);

void gb_peer_content_end(struct gb_peer_content *content); /* a zeroed one is fine */

/* The bytes of all buffers of a layout of form CREATE. False: 2^52 or more. */
bool gb_peer_content_bytes(const struct gb_layout *layout, uint64_t *bytes);

static inline uint64_t gb_peer_content_chunks(uint64_t bytes)
{
    return (bytes + GB_PEER_CHUNK - 1) / GB_PEER_CHUNK;
}
static inline uint64_t gb_peer_content_chunk_bytes(uint64_t bytes, uint64_t chunk)
{
    return bytes - chunk * GB_PEER_CHUNK < GB_PEER_CHUNK ? bytes - chunk * GB_PEER_CHUNK
                                                         : GB_PEER_CHUNK;
}

/* The chunk's own memory, if it is in host memory, in one piece, and in the form in which it is
   sent; else NULL. */
void *gb_peer_content_direct(const struct gb_peer_content *content, uint64_t chunk);

/* A block of GB_PEER_CHUNK + 8 bytes, for a chunk that gb_peer_content_direct does not give. It
   is pinned if the object is on a GPU, and kept for the next chunk when it is given back. */
int gb_peer_content_stage(const struct gb_peer_content *content, uint64_t chunk,
                          struct gb_staging **block, struct gb_error *error);

/* Gives a chunk: in its own memory, with *block NULL, or read into *block, which the caller gives
   back. On failure there is no block. Any thread. */
int gb_peer_content_read(const struct gb_peer_content *content, uint64_t chunk,
                         struct gb_staging **block, const void **bytes, struct gb_error *error);
/* Copies a chunk from `buffer`, of GB_PEER_CHUNK + 8 bytes. */
int gb_peer_content_write(const struct gb_peer_content *content, uint64_t chunk, const void *buffer,
                          struct gb_error *error);

uint64_t gb_peer_content_sum(const void *bytes, size_t length);

#endif
