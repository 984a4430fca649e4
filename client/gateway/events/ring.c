#include "client/gateway/events/ring.h"

#include <stdlib.h>
#include <string.h>

#include "client/gateway/base/clock.h"

bool gb_gateway_ring_init(struct gb_gateway_ring *ring)
{
    memset(ring, 0, sizeof(*ring));
    pthread_mutex_init(&ring->lock, NULL);
    gb_gateway_condition_init(&ring->changed);
    ring->told = calloc(GB_GATEWAY_RING_EVENTS, sizeof(*ring->told));
    return ring->told;
}

static struct gb_gateway_told *at(const struct gb_gateway_ring *ring, uint64_t place)
{
    return &ring->told[place % GB_GATEWAY_RING_EVENTS];
}

static size_t size_of(const struct gb_gateway_told *told)
{
    bool same = told->text[0] == told->text[1];

    return told->length[0] + (same ? 0 : told->length[1]);
}

static void told_free(const struct gb_gateway_told *told)
{
    if (told->text[1] != told->text[0])
        free(told->text[1]);
    free(told->text[0]);
}

static void drop_first(struct gb_gateway_ring *ring)
{
    struct gb_gateway_told *told = at(ring, ring->first);

    ring->bytes -= size_of(told);
    told_free(told);
    if (ring->stats == ring->first)
        ring->has_stats = false;
    ring->first++;
}

void gb_gateway_ring_end(struct gb_gateway_ring *ring)
{
    while (ring->first < ring->next)
        drop_first(ring);
    free(ring->told);
    pthread_cond_destroy(&ring->changed);
    pthread_mutex_destroy(&ring->lock);
}

void gb_gateway_ring_put(struct gb_gateway_ring *ring, const struct gb_gateway_told *told)
{
    pthread_mutex_lock(&ring->lock);
    while (ring->first < ring->next && (ring->next - ring->first == GB_GATEWAY_RING_EVENTS ||
                                        ring->bytes + size_of(told) > GB_GATEWAY_RING_BYTES))
        drop_first(ring);
    *at(ring, ring->next) = *told;
    ring->bytes += size_of(told);
    if (told->stats) {
        ring->stats = ring->next;
        ring->has_stats = true;
    }
    ring->next++;
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->lock);
}

void gb_gateway_ring_clear(struct gb_gateway_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    while (ring->first < ring->next)
        drop_first(ring);
    pthread_mutex_unlock(&ring->lock);
}

void gb_gateway_ring_stop(struct gb_gateway_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->stopped = true;
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->lock);
}

/* The place after the event with that number. False: the ring does not have it, or never had. */
static bool find_after(const struct gb_gateway_ring *ring, uint64_t seq, uint64_t *place)
{
    for (uint64_t p = ring->next; p > ring->first; p--) {
        const struct gb_gateway_told *told = at(ring, p - 1);

        *place = told->seq == seq ? p : p - 1;
        if (told->seq == seq || (!told->stats && told->before == seq))
            return true;
        if (told->seq < seq)
            return false;
    }
    return false;
}

uint64_t gb_gateway_ring_place(struct gb_gateway_ring *ring, uint64_t seq)
{
    uint64_t place;

    pthread_mutex_lock(&ring->lock);
    if (seq == UINT64_MAX || !find_after(ring, seq, &place))
        place = ring->has_stats ? ring->stats : ring->next;
    pthread_mutex_unlock(&ring->lock);
    return place;
}

bool gb_gateway_ring_wait(struct gb_gateway_ring *ring, uint64_t place, unsigned ms)
{
    int64_t until = gb_gateway_clock_ms() + ms;
    bool stopped;

    pthread_mutex_lock(&ring->lock);
    while (!ring->stopped && place >= ring->next &&
           gb_gateway_condition_wait(&ring->changed, &ring->lock, until))
        ;
    stopped = ring->stopped;
    pthread_mutex_unlock(&ring->lock);
    return !stopped;
}

bool gb_gateway_ring_sleep(struct gb_gateway_ring *ring, unsigned ms)
{
    return gb_gateway_ring_wait(ring, UINT64_MAX, ms);
}

uint64_t gb_gateway_ring_read(struct gb_gateway_ring *ring, uint64_t *place,
                              bool (*each)(void *arg, const struct gb_gateway_told *told),
                              void *arg)
{
    uint64_t lost = 0;

    pthread_mutex_lock(&ring->lock);
    if (*place < ring->first) {
        lost = ring->first - *place;
        *place = ring->first;
    }
    while (*place < ring->next && each(arg, at(ring, *place)))
        (*place)++;
    pthread_mutex_unlock(&ring->lock);
    return lost;
}
