/*
 * How many machines may fetch one object from one machine at the same time. Past that the machine
 * answers `busy`: the others wait, and then fetch from machines that have a copy by then. So an
 * object that a whole cluster wants at once spreads as a tree, and the first machines have it
 * early. If one machine served all at once, all would be done late.
 *
 * A small object goes to all at once: waiting would take longer than sending it.
 */
#ifndef GB_PEER_CROWD_H
#define GB_PEER_CROWD_H

#include <stdbool.h>
#include <stdint.h>

enum { GB_PEER_CROWD_READERS = 4 };              /* any number of bytes */
#define GB_PEER_CROWD_BYTES ((uint64_t)64 << 20) /* to all readers of an object together */

/* Whether one more machine may fetch an object of that many bytes, beside `readers` others. */
static inline bool gb_peer_crowd_takes(unsigned readers, uint64_t bytes)
{
    return readers < GB_PEER_CROWD_READERS || bytes == 0 || readers < GB_PEER_CROWD_BYTES / bytes;
}

#endif
