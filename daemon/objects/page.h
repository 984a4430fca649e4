/*
 * The page of a session that caches leases: memory that the daemon writes and the session's peer
 * may only read. A slot holds the number of a lease as long as the name of the lease's object means
 * that object, else 0. A peer that finds its lease there need not ask the daemon.
 *
 * The daemon never reads the page; a bit map beside it says which slots are taken. The loop's.
 *
 * After a crash nobody writes the page, but a reader would believe it until it learns that the
 * connection has ended; a successor may have served others by then. So readers also look at the
 * daemon's *pulse*: a word, the same for all, which the kernel changes when the loop's thread dies,
 * in whatever way, before it closes the daemon's sockets.
 */
#ifndef GB_PAGE_H
#define GB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"

#define GB_PAGE_SLOTS 2048u /* twice what libgpubuf caches by default; 16 KiB, charged to nobody */

struct gb_page {
    _Atomic uint64_t *slots;            /* shared with the peer, which reads them */
    uint64_t taken[GB_PAGE_SLOTS / 64]; /* a bit for each slot */
    unsigned lowest;                    /* no word of `taken` before this one has a free bit */
};

/* A robust mutex, which the loop's thread holds until it ends. Readers look at its first word. */
struct gb_pulse {
    void *mutex; /* NULL: there is none */
    int fd;      /* to send; its receivers can only read */
};

/* Makes memory, and a descriptor of it, that cannot shrink or grow, and maps it, unless `memory` is
   NULL. `ours`: nobody can write it but through that mapping; else only by the descriptor itself,
   and by none that is opened anew. GPUBUF_E_DEVICE, GPUBUF_E_LIMIT. */
int gb_page_memory(size_t bytes, bool ours, void **memory, int *fd, struct gb_error *error);

/* To be called by the loop's thread. Errors: likewise. */
int gb_pulse_begin(struct gb_pulse *pulse, struct gb_error *error);
/* From now on no reader believes a page of this daemon. Does nothing if there is no pulse. */
void gb_pulse_end(struct gb_pulse *pulse);

/* Makes a page, and a descriptor of it to send, which is the caller's and which nobody can write,
   grow or shrink. Unused slots take no memory. Errors: likewise, and GPUBUF_E_NO_MEMORY. */
int gb_page_new(struct gb_page **page, int *fd, struct gb_error *error);
void gb_page_free(struct gb_page *page); /* NULL is fine */

/* Writes the lease into the lowest free slot and returns the slot's number, from 1 on; 0: none is
   free, or there is no page. */
unsigned gb_page_fill_slot(struct gb_page *page, uint64_t lease);
/* Empties the slot, since the name means something else now. A peer that learns of that from the
   daemon finds the slot empty. */
void gb_page_clear(struct gb_page *page, unsigned slot);
/* Empties the slot and frees it. 0 is fine. */
void gb_page_drop(struct gb_page *page, unsigned slot);

#endif
