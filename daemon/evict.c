#include "evict.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- recency ---- */

static void put_in(struct gb_recent *entry)
{
    gb_list_append(&entry->in->head, &entry->link);
    entry->in->count++;
    entry->in->bytes += entry->bytes;
}

static void take_out(struct gb_recent *entry)
{
    gb_list_remove(&entry->link);
    entry->in->count--;
    entry->in->bytes -= entry->bytes;
}

void gb_recency_init(struct gb_recency *recency)
{
    gb_list_init(&recency->head);
    recency->count = recency->bytes = 0;
}

void gb_recent_enter(struct gb_recency *recency, struct gb_recent *entry, uint64_t bytes)
{
    gb_recent_leave(entry);
    entry->in = recency;
    entry->bytes = bytes;
    if (!entry->holds)
        put_in(entry);
}

void gb_recent_leave(struct gb_recent *entry)
{
    if (entry->in && !entry->holds)
        take_out(entry);
    entry->in = NULL;
}

void gb_recent_hold(struct gb_recent *entry)
{
    if (!entry->holds++ && entry->in)
        take_out(entry);
}

void gb_recent_drop(struct gb_recent *entry)
{
    assert(entry->holds);
    if (!--entry->holds && entry->in)
        put_in(entry);
}

void gb_recent_touch(struct gb_recent *entry)
{
    if (!entry->in || entry->holds)
        return;
    gb_list_remove(&entry->link);
    gb_list_append(&entry->in->head, &entry->link);
}

struct gb_recent *gb_recency_oldest(const struct gb_recency *recency)
{
    if (gb_list_empty(&recency->head))
        return NULL;
    return GB_CONTAINER(recency->head.next, struct gb_recent, link);
}

/* ---- deadlines: heap[0] is the earliest; the children of place p are at 2p and 2p + 1 ---- */

#define CAPACITY_MIN 16u

static void put(struct gb_deadlines *deadlines, size_t place, struct gb_deadline *deadline)
{
    deadlines->heap[place - 1] = deadline;
    deadline->place = place;
}

/* Finds the place for a deadline, from an empty place on: towards the root or away from it. */
static void settle(struct gb_deadlines *deadlines, size_t place, struct gb_deadline *deadline)
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
    settle(deadlines, deadline->place, deadline);
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
        settle(deadlines, place, last);
    deadline->place = 0;
    if (deadlines->capacity > CAPACITY_MIN && deadlines->count < deadlines->capacity / 4)
        set_capacity(deadlines, deadlines->capacity / 2); /* kept as it is if that fails */
}

struct gb_deadline *gb_deadlines_first(const struct gb_deadlines *deadlines)
{
    return deadlines->count ? deadlines->heap[0] : NULL;
}
