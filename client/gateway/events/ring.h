/*
 * The latest events, for readers that read at their own pace. One thread puts events in. Any number
 * of readers take them, each at a place of its own. A reader that is too slow loses the oldest
 * events, and sees it by their numbers. The ring never waits for a reader.
 */
#ifndef GB_GATEWAY_RING_H
#define GB_GATEWAY_RING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/json.h"

#define GB_GATEWAY_RING_EVENTS (1u << 15)
#define GB_GATEWAY_RING_BYTES (16u << 20)

/* Two audiences: readers who may see everything that the gateway sees, and readers who may see the
   objects that everybody may open. */
enum gb_gateway_audience {
    GB_GATEWAY_AUDIENCE_ALL,
    GB_GATEWAY_AUDIENCE_PUBLIC,
    GB_GATEWAY_AUDIENCES
};

struct gb_gateway_told {
    uint64_t seq;
    uint64_t before; /* the number of the event before; for stats, its own */
    char
        *text[GB_GATEWAY_AUDIENCES]; /* JSON; owned. The same pointer if both audiences are told the
                                 same */
    size_t length[GB_GATEWAY_AUDIENCES];
    bool stats;
};

struct gb_gateway_ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gb_gateway_told *told; /* GB_GATEWAY_RING_EVENTS of them; place p is at index p modulo
                 GB_GATEWAY_RING_EVENTS */
    uint64_t first, next;         /* places */
    uint64_t stats;               /* the place of the latest stats, if has_stats */
    bool has_stats;
    size_t bytes;
    bool stopped;
};

bool gb_gateway_ring_init(struct gb_gateway_ring *ring);
void gb_gateway_ring_end(struct gb_gateway_ring *ring);
/* Takes the texts over in any case. */
void gb_gateway_ring_put(struct gb_gateway_ring *ring, const struct gb_gateway_told *told);
/* Drops all events, since another daemon has begun to tell. Places go on. */
void gb_gateway_ring_clear(struct gb_gateway_ring *ring);
/* Ends all waiting: every gb_gateway_ring_wait returns false from now on. */
void gb_gateway_ring_stop(struct gb_gateway_ring *ring);

/* The place at which a reader begins that has the events up to number `seq`: the next event, if the
   ring still has it; else, and if `seq` is UINT64_MAX, the latest stats. */
uint64_t gb_gateway_ring_place(struct gb_gateway_ring *ring, uint64_t seq);
/* Waits until there is an event at the place, or until `ms` have passed. False: the gateway
   stops. */
bool gb_gateway_ring_wait(struct gb_gateway_ring *ring, uint64_t place, unsigned ms);
/* Sleeps `ms`. False: the gateway stops. */
bool gb_gateway_ring_sleep(struct gb_gateway_ring *ring, unsigned ms);
/*
 * Calls `each` for the events from *place on, until it returns false, and moves *place on. The ring
 * is locked meanwhile. Returns the number of events that were lost before.
 */
uint64_t gb_gateway_ring_read(struct gb_gateway_ring *ring, uint64_t *place,
                              bool (*each)(void *arg, const struct gb_gateway_told *told),
                              void *arg);

#endif
