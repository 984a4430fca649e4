/*
 * Frames on their way out, in order. A frame is a head of GB_HEAD_BYTES,
 *
 *     4 bytes length of what follows, 1 kind, 3 zero, 8 request, 8 sum
 *
 * all little-endian, and what follows: kind 'c' is control, JSON, with sum 0; kind 'd' is data, one
 * chunk, with its XXH3. Data is asked for when its turn comes, so that what is queued takes no
 * memory.
 *
 * On the loop's thread.
 */
#ifndef GB_OUTBOX_H
#define GB_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/errors.h"

struct gb_staging;

enum {
    GB_HEAD_BYTES = 24,
    GB_REQUEST_WAIT = 0, /* no request: a message that says that answers take longer */
};

struct gb_head {
    uint32_t length;
    char kind;
    uint64_t request, sum;
};

/* False: a byte that must be 0 is not. */
bool gb_head_read(const unsigned char bytes[GB_HEAD_BYTES], struct gb_head *head);

/* A chunk to be sent. `fill` gives it when its turn comes: at *bytes, which stay until `done`. If
   it fails, the sentence is sent in the chunk's place. `done` is called once, sent or not. */
struct gb_source {
    int (*fill)(struct gb_source *source, const void **bytes, size_t *length, uint64_t *sum,
                struct gb_error *error);
    void (*done)(const struct gb_source *source);
    void *user;
    uint64_t chunk;
    struct gb_staging *block; /* that `fill` took for it, and `done` gives back; NULL: none */
};

struct gb_outbox {
    struct gb_item *first, *last;
    size_t count;
    size_t sent; /* of the first one, its head included */
    bool filled; /* the first one knows its bytes */
};

/* False: out of memory; then `done` of the source is called. */
bool gb_outbox_text(struct gb_outbox *box, uint64_t request, const char *text, size_t length);
bool gb_outbox_chunk(struct gb_outbox *box, uint64_t request, const struct gb_source *source);
/* {"error":{"kind","message"}} */
bool gb_outbox_error(struct gb_outbox *box, uint64_t request, const struct gb_error *error);

/* The bytes to be sent next, of a box that is not empty; and that `count` of them were. */
bool gb_outbox_next(struct gb_outbox *box, const void **bytes, size_t *length);
void gb_outbox_sent(struct gb_outbox *box, size_t count);

void gb_outbox_end(struct gb_outbox *box);

#endif
