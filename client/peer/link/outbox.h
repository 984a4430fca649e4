/*
 * Frames on their way out, in order. A frame is a head of GB_PEER_HEAD_BYTES,
 *
 *     4 bytes length of what follows, 1 kind, 3 zero, 8 request, 8 sum
 *
 * all little-endian, and its body. Kind 'c' is control: JSON, with sum 0. Kind 'd' is data: one
 * chunk, with its XXH3. A chunk is read when its turn comes, so queued chunks take no memory.
 *
 * On the loop's thread. While another thread has the first item (gb_peer_outbox_next, _sent), the
 * loop's may queue more, but does not end the box or take the item off.
 */
#ifndef GB_PEER_OUTBOX_H
#define GB_PEER_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"
#include "proto/base/list.h"

struct gb_staging;

enum {
    GB_PEER_HEAD_BYTES = 24,
    GB_PEER_REQUEST_WAIT = 0, /* not a request: the message that answers take longer */
};

struct gb_peer_head {
    uint32_t length;
    char kind, zeros[3];
    uint64_t request, sum;
};

/* Reads a head. False: a byte that must be 0 is not. */
bool gb_peer_head_read(const unsigned char bytes[GB_PEER_HEAD_BYTES], struct gb_peer_head *head);

/* A chunk to be sent. When its turn comes, `fill` sets *memory, which stays until `done`. If `fill`
   fails, its sentence is sent in the chunk's place. `done` is called once, whether it was sent or
   not. */
struct gb_peer_source {
    int (*fill)(struct gb_peer_source *source, const void **memory, uint64_t *sum,
                struct gb_error *error);
    void (*done)(const struct gb_peer_source *source, bool filled);
    void *user;
    uint64_t chunk, bytes;
    struct gb_staging *block; /* taken by `fill` and given back by `done`; NULL: none */
};

struct gb_peer_outbox {
    struct gb_link items; /* struct gb_peer_item */
    size_t count;
    size_t sent; /* bytes of the first item, its head included */
};

/* Queues an item. False: out of memory; a source's `done` has been called then. */
bool gb_peer_outbox_text(struct gb_peer_outbox *box, uint64_t request, const char *text,
                         size_t length);
bool gb_peer_outbox_chunk(struct gb_peer_outbox *box, uint64_t request,
                          const struct gb_peer_source *source);
/* {"error":{"kind","message"}} */
bool gb_peer_outbox_error(struct gb_peer_outbox *box, uint64_t request,
                          const struct gb_error *error);

/* The bytes of the first item's chunk; 0: the box is empty, or it is text. */
uint64_t gb_peer_outbox_chunk_bytes(const struct gb_peer_outbox *box);
/* The bytes to send next, of a box that is not empty (false: out of memory). */
bool gb_peer_outbox_next(struct gb_peer_outbox *box, const void **bytes, size_t *length);
/* So many bytes were sent. True: the whole item, which is to be dropped. */
bool gb_peer_outbox_sent(struct gb_peer_outbox *box, size_t count);
void gb_peer_outbox_drop(struct gb_peer_outbox *box);

void gb_peer_outbox_end(struct gb_peer_outbox *box);

#endif
