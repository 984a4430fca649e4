/*
 * How many machines may fetch one object from one machine at the same time. Past that it says
 * `busy`: the others wait, and then fetch from those that have a copy by then. So an object that
 * all of a cluster want at once spreads as a tree, and the first of them have it early, where a
 * machine that served all would have none of them done before the last.
 *
 * A small object goes to all at once: waiting would take longer than sending it.
 */
#ifndef GB_CROWD_H
#define GB_CROWD_H

#include <stdbool.h>
#include <stdint.h>

enum { GB_CROWD_READERS = 4 };              /* any number of bytes */
#define GB_CROWD_BYTES ((uint64_t)64 << 20) /* to all readers of an object together */

/* Whether one more may, beside `readers` of an object of that many bytes. */
static inline bool gb_crowd_takes(unsigned readers, uint64_t bytes)
{
    return readers < GB_CROWD_READERS || bytes == 0 || readers < GB_CROWD_BYTES / bytes;
}

#endif
