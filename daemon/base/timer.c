#include "daemon/base/timer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/list.h"

/* heap[0] is the earliest; the children of place p are at 2p and 2p + 1. */

#define CAPACITY_MIN 16u

static void put(struct gb_deadlines *deadlines, size_t place, struct gb_deadline *deadline)
{
    deadlines->heap[place - 1] = deadline;
    deadline->place = place;
}

/* Puts a deadline into the heap, from an empty place on: towards the root or away from it. */
static void sift(struct gb_deadlines *deadlines, size_t place, struct gb_deadline *deadline)
{
    struct gb_deadline **heap = deadlines->heap;

    assert(heap && place && place <= deadlines->count);
    while (place > 1 && heap[place / 2 - 1]->at > deadline->at) {
        put(deadlines, place, heap[place / 2 - 1]);
        place /= 2;
    }
    for (size_t child; (child = place * 2) <= deadlines->count; place = child) {
        if (child < deadlines->count && heap[child]->at < heap[child - 1]->at)
            child++;
        if (heap[child - 1]->at >= deadline->at)
            break;
        put(deadlines, place, heap[child - 1]);
    }
    put(deadlines, place, deadline);
}

static bool set_capacity(struct gb_deadlines *deadlines, size_t capacity)
{
    struct gb_deadline **heap;

    if (capacity > SIZE_MAX / sizeof(struct gb_deadline *))
        return false;
    heap = realloc(deadlines->heap, capacity * sizeof(struct gb_deadline *));
    if (!heap)
        return false;
    deadlines->heap = heap;
    deadlines->capacity = capacity;
    return true;
}

void gb_deadlines_end(struct gb_deadlines *deadlines)
{
    free(deadlines->heap);
    memset(deadlines, 0, sizeof *deadlines);
}

bool gb_deadlines_add(struct gb_deadlines *deadlines, struct gb_deadline *deadline, uint64_t at)
{
    if (!deadline->place) {
        size_t capacity = deadlines->capacity;

        if (deadlines->count == capacity &&
            !set_capacity(deadlines, capacity ? capacity * 2 : CAPACITY_MIN))
            return false;
        deadline->place = ++deadlines->count;
    }
    deadline->at = at;
    sift(deadlines, deadline->place, deadline);
    return true;
}

void gb_deadlines_remove(struct gb_deadlines *deadlines, struct gb_deadline *deadline)
{
    size_t place = deadline->place;
    struct gb_deadline *last;

    if (!place)
        return;
    assert(deadlines->heap[place - 1] == deadline);
    last = deadlines->heap[--deadlines->count];
    if (last != deadline)
        sift(deadlines, place, last);
    deadline->place = 0;
    if (deadlines->capacity > CAPACITY_MIN && deadlines->count < deadlines->capacity / 4)
        set_capacity(deadlines, deadlines->capacity / 2); /* if that fails it stays as it is */
}

struct gb_deadline *gb_deadlines_first(const struct gb_deadlines *deadlines)
{
    return deadlines->count ? deadlines->heap[0] : NULL;
}

bool gb_timer_set(struct gb_deadlines *timers, struct gb_timer *timer, uint64_t at_ms)
{
    return gb_deadlines_add(timers, &timer->deadline, at_ms);
}

void gb_timer_cancel(struct gb_deadlines *timers, struct gb_timer *timer)
{
    gb_deadlines_remove(timers, &timer->deadline);
}

bool gb_timers_fire_next(struct gb_deadlines *timers, uint64_t now_ms)
{
    struct gb_deadline *first = gb_deadlines_first(timers);
    struct gb_timer *timer;

    if (!first || first->at > now_ms)
        return false;
    timer = GB_CONTAINER(first, struct gb_timer, deadline);
    gb_deadlines_remove(timers, first);
    timer->fire(timer);
    return true;
}
