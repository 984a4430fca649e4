/*
 * Deadlines in a binary heap: adding, moving and removing one takes logarithmic time, finding the
 * earliest none. A timer is a deadline with a function to call. The heap has no clock: the caller
 * says what time it is. Not thread-safe. Deadlines and timers belong to the caller, who embeds the
 * structs.
 */
#ifndef GB_TIMER_H
#define GB_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gb_deadline {
    uint64_t at;  /* in the caller's milliseconds */
    size_t place; /* 1-based index in the heap; 0: not in it */
};

struct gb_deadlines {
    struct gb_deadline **heap;
    size_t count, capacity;
};

/* A zeroed struct gb_deadlines is an empty heap. Ending it frees the heap, not the deadlines. */
void gb_deadlines_end(struct gb_deadlines *deadlines);
/* Adds a deadline, zeroed before its first use, or moves one that is in the heap to another time.
   False if memory is out (never when moving). */
bool gb_deadlines_add(struct gb_deadlines *deadlines, struct gb_deadline *deadline, uint64_t at);
/* Does nothing if the deadline is not in the heap. */
void gb_deadlines_remove(struct gb_deadlines *deadlines, struct gb_deadline *deadline);
/* The earliest; NULL if there is none. */
struct gb_deadline *gb_deadlines_first(const struct gb_deadlines *deadlines);

/* A deadline with a function that is called then: for the end of a wait, or of a peer's time to
   complete a line. */
struct gb_timer {
    struct gb_deadline deadline;
    void (*fire)(struct gb_timer *timer);
};

/* `timers` holds nothing but struct gb_timer. Setting a timer that is set moves it. False if memory
   is out. */
bool gb_timer_set(struct gb_deadlines *timers, struct gb_timer *timer, uint64_t at_ms);
/* Does nothing if the timer is not set. */
void gb_timer_cancel(struct gb_deadlines *timers, struct gb_timer *timer);
/* Calls the earliest timer whose time has come; false: there is none. It is out of the heap when it
   is called, and may be set again, or freed. */
bool gb_timers_fire_next(struct gb_deadlines *timers, uint64_t now_ms);

#endif
