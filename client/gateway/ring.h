/*
 * The events of late, for those who read at their own pace. One thread puts, any number take, each
 * at a place of its own; whoever is too slow loses the oldest, and the numbers show it. Nobody is
 * waited for.
 */
#ifndef GB_RING_H
#define GB_RING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json.h"

#define GB_RING_EVENTS (1u << 15)
#define GB_RING_BYTES (16u << 20)

/* Two audiences: readers who may see what the gateway sees, and those who may see what everybody
   may open. */
enum gb_audience { GB_AUDIENCE_ALL, GB_AUDIENCE_PUBLIC, GB_AUDIENCES };

struct gb_told {
    uint64_t seq;
    uint64_t before;          /* the number of the event before; of stats: its own */
    char *text[GB_AUDIENCES]; /* JSON; owned, and the same where everybody is told the same */
    size_t length[GB_AUDIENCES];
    bool stats;
};

struct gb_ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gb_told *told; /* GB_RING_EVENTS of them; the one at place p is at p modulo that */
    uint64_t first, next; /* places */
    uint64_t stats;       /* the place of the latest stats, if has_stats */
    bool has_stats;
    size_t bytes;
    bool stopped;
};

bool gb_ring_init(struct gb_ring *ring);
void gb_ring_end(struct gb_ring *ring);
/* Takes the texts in any case. */
void gb_ring_put(struct gb_ring *ring, const struct gb_told *told);
/* Another daemon: what the one before told is no answer to anybody any more. Places go on. */
void gb_ring_clear(struct gb_ring *ring);
/* No more waiting: every gb_ring_wait returns false from now on. */
void gb_ring_stop(struct gb_ring *ring);

/* Where one begins who knows events up to the number `seq`: at the next, if that is still here;
   else, and where it is UINT64_MAX, at the latest stats. */
uint64_t gb_ring_place(struct gb_ring *ring, uint64_t seq);
/* Waits until there is something at the place or `ms` are over. False: the gateway stops. */
bool gb_ring_wait(struct gb_ring *ring, uint64_t place, unsigned ms);
/* Sleeps so long; false: the gateway stops. */
bool gb_ring_sleep(struct gb_ring *ring, unsigned ms);
/*
 * Hands what is there from *place on to `each`, until it returns false, and moves *place on. The
 * ring is locked meanwhile. Returns how many were lost before.
 */
uint64_t gb_ring_take(struct gb_ring *ring, uint64_t *place,
                      bool (*each)(void *arg, const struct gb_told *told), void *arg);

#endif
