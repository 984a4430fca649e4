/*
 * The time of a simulation, in nanoseconds, and what happens in it: a heap of functions that are to
 * be called. Events of one moment run in the order in which they were added. To be included once in
 * a program, which aborts when memory is out.
 */
#ifndef GB_SIM_EVENTS_H
#define GB_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct event {
    uint64_t at, serial;
    void (*run)(void *user, uint64_t number);
    void *user;
    uint64_t number;
};

static struct event *heap; /* the root is the earliest */
static size_t heap_count, heap_room;
static uint64_t now, last_event;

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

static void at(uint64_t when, void (*run)(void *, uint64_t), void *user, uint64_t number)
{
    struct event event = {when, ++last_event, run, user, number};
    size_t i = heap_count++;

    if (heap_count > heap_room) {
        heap_room = heap_room ? 2 * heap_room : 1024;
        heap = reallocarray(heap, heap_room, sizeof(*heap));
        if (!heap)
            abort();
    }
    for (; i > 0 && before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
}

static struct event earliest(void)
{
    struct event first = heap[0], moved = heap[--heap_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < heap_count) {
        if (child + 1 < heap_count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &moved))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
    return first;
}

#endif
