/*
 * How events leave the loop's thread: in batches of finished messages that nobody changes any more,
 * shared by all who take them. An *outlet* is a bounded queue of batches for one other thread, which
 * is woken when there is something in it. When the thread does not keep up, batches are dropped for
 * it; the numbers of the events show that.
 */
#ifndef GB_FEED_H
#define GB_FEED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/base/list.h"

/* Who is told: those who may see every object (the daemon's group, the operator with the token), and
   those who may see what everybody may open. */
enum gb_audience { GB_AUDIENCE_ALL = 1, GB_AUDIENCE_PUBLIC = 2 };

/* In front of each message; the next one begins at a multiple of 8 bytes. */
struct gb_record {
    uint32_t topic_bytes; /* "sealed sales/price" */
    uint32_t json_bytes;
    uint32_t audience; /* bits of enum gb_audience */
    uint32_t reserved;
    char text[]; /* the topic, a newline, the JSON */
};

struct gb_batch {
    atomic_uint references;
    uint32_t count;
    size_t length, capacity;
    char *data;
};

struct gb_batch *gb_batch_new(void); /* with one reference; NULL if memory is out */
struct gb_batch *gb_batch_ref(struct gb_batch *batch);
void gb_batch_unref(struct gb_batch *batch); /* NULL is fine */
/* Only by whom made it, before it is put anywhere. False if memory is out. */
bool gb_batch_add(struct gb_batch *batch, unsigned audience, const char *topic, size_t topic_bytes,
                  const char *json, size_t json_bytes);
/* for (r = gb_batch_next(batch, NULL); r; r = gb_batch_next(batch, r)) */
const struct gb_record *gb_batch_next(const struct gb_batch *batch, const struct gb_record *record);

#define GB_OUTLET_BATCHES 256

struct gb_outlet {
    uv_mutex_t lock;
    struct gb_batch *batches[GB_OUTLET_BATCHES]; /* a ring; guarded by the lock, as are the next */
    unsigned first, count;
    size_t bytes, most_bytes;
    uint64_t dropped;        /* messages, since the start; guarded */
    atomic_uint takers;      /* how many are served by it now: with none nothing need be put */
    void (*wake)(void *arg); /* called by any thread that puts; must not block */
    void *arg;
};

int gb_outlet_init(struct gb_outlet *outlet, size_t most_bytes, void (*wake)(void *arg), void *arg);
void gb_outlet_end(struct gb_outlet *outlet);
/* Adds a reference to the batch, or drops the batch for this outlet. */
void gb_outlet_put(struct gb_outlet *outlet, struct gb_batch *batch);
/* The oldest batch, with its reference; NULL if there is none. */
struct gb_batch *gb_outlet_take(struct gb_outlet *outlet);
uint64_t gb_outlet_dropped(struct gb_outlet *outlet);

#endif
