/*
 * The page of a session that keeps leases: memory that the daemon writes and the session's peer may
 * only read. A slot holds the number of a lease for as long as the lease's name means the object
 * that the lease is on, and else 0. So a peer that finds its lease there need not ask.
 *
 * Nothing is ever read from it: what is taken is known by a map of bits beside it. The loop's.
 *
 * A page that nobody writes any more would be believed until its reader learns that the connection
 * has ended, and a successor may have answered others by then. So readers have the daemon's
 * *pulse*, too: a word, the same for all, which the kernel changes when the loop's thread dies,
 * however it does, and before the daemon's sockets are closed.
 */
#ifndef GB_PAGE_H
#define GB_PAGE_H

#include <stdint.h>

#include "proto/errors.h"

#define GB_PAGE_SLOTS 8192u

struct gb_page {
    _Atomic uint64_t *slots;            /* shared with the peer, who reads them */
    uint64_t taken[GB_PAGE_SLOTS / 64]; /* a bit for each */
    unsigned lowest;                    /* no word of `taken` before it has a free one */
};

/* A robust mutex that its thread holds until it ends; for readers, its first word. */
struct gb_pulse {
    void *mutex; /* NULL: there is none */
    int fd;      /* for reading only by whomever it is sent to */
};

/* By the loop's thread. GPUBUF_E_SYSTEM. */
int gb_pulse_begin(struct gb_pulse *pulse, struct gb_error *error);
/* Nothing that was told by a page is believed any more. Fine if there is none. */
void gb_pulse_end(struct gb_pulse *pulse);

/* A page and a descriptor of it to send, the caller's, which nobody can write, grow or shrink.
   Unused slots take no memory. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_page_new(struct gb_page **page, int *fd, struct gb_error *error);
void gb_page_free(struct gb_page *page); /* NULL is fine */

/* Writes the lease into a free slot, the lowest, and returns its number from 1 on; 0: none is free,
   or there is no page. */
unsigned gb_page_take(struct gb_page *page, uint64_t lease);
/* The name means something else now: whoever is told of that afterwards finds the slot empty. */
void gb_page_clear(struct gb_page *page, unsigned slot);
/* That, and the slot is free. 0 is fine. */
void gb_page_drop(struct gb_page *page, unsigned slot);

#endif
