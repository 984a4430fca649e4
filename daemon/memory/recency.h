/*
 * The order of eviction: exact least-recently-used order over what may be evicted, one order for
 * each device and each tier below. Pure; no clock of its own; not thread-safe. Entries belong to
 * the caller, who embeds the structs.
 */
#ifndef GB_RECENCY_H
#define GB_RECENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/list.h"

/*
 * An entry is *clean* when letting it go loses nothing or takes no work: its content is kept
 * elsewhere, or need not be. The others are *dirty*: something has to be done first. Both are in
 * one order of use; they are listed apart, so that the oldest of either kind is at hand.
 */
struct gb_recency {
    struct gb_link clean, dirty; /* each the least recently used first */
    uint64_t count, bytes, clean_bytes, needed_bytes;
    uint64_t clock; /* uses so far */
};

/* Zeroed before its first use. */
struct gb_recent {
    struct gb_link link;
    uint64_t bytes; /* what letting it go would free */
    uint64_t holds; /* leases, pins, `keep`, work: while above 0 it is in no list */
    uint64_t used;  /* the list's clock at its last use */
    bool clean;
    bool needed;           /* its content is to be kept, here or elsewhere */
    struct gb_recency *in; /* the list it belongs to, whether it is in it now or not */
};

void gb_recency_init(struct gb_recency *recency);
/* Enters an entry as the most recently used; one that is held belongs to the list from now on and
   is put into it by its last drop. Moves an entry that belongs to another list. */
void gb_recent_enter(struct gb_recency *recency, struct gb_recent *entry, uint64_t bytes);
/* Takes it out for good; its holds stay counted. Fine if it belongs to no list. */
void gb_recent_leave(struct gb_recent *entry);
/* A hold takes it off the list; the last drop puts it back as the most recently used. Both only
   count while the entry belongs to no list. */
void gb_recent_hold(struct gb_recent *entry);
void gb_recent_drop(struct gb_recent *entry);
/* As gb_recent_drop, but it goes back to where it was: the hold was no use of it. */
void gb_recent_drop_unused(struct gb_recent *entry);
/* A use without a hold: to the end of the list. Nothing happens if it is held or in none. */
void gb_recent_touch(struct gb_recent *entry);
/* Makes it clean or dirty, needed or not, which changes nothing in the order. */
void gb_recent_set(struct gb_recent *entry, bool clean, bool needed);
/* The least recently used: of all, of the clean, of the dirty; NULL if there is none. */
struct gb_recent *gb_recency_oldest(const struct gb_recency *recency);
struct gb_recent *gb_recency_oldest_clean(const struct gb_recency *recency);
struct gb_recent *gb_recency_oldest_dirty(const struct gb_recency *recency);
/* Counts the entries used before one that is in its list: how many entries, and their bytes. At
   most `most` entries are looked at from either end; false if that was not enough: there are more
   than these. */
bool gb_recent_before(const struct gb_recent *entry, uint64_t most, uint64_t *count,
                      uint64_t *bytes);

#endif
