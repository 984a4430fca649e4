/*
 * The order of eviction: exact least-recently-used order over the storages of a device that may be
 * evicted, and over the copies of a tier. Pure; no clock of its own; not thread-safe. Entries
 * belong to the caller, who embeds the structs.
 */
#ifndef GB_RECENCY_H
#define GB_RECENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"

/*
 * An entry is *clean* if it can be evicted at once: its content is elsewhere, too, or need not be
 * kept. Others are *dirty*: their content has to be copied first. Both are in one order of use, but
 * in two lists, so that the oldest of either kind is at hand. Zeroed, it is empty.
 */
struct gb_recency {
    struct gb_link clean, dirty; /* each the least recently used first */
    uint64_t count, bytes, clean_bytes, needed_bytes;
    uint64_t clock; /* uses so far */
};

/* Zeroed before its first use. */
struct gb_recent {
    struct gb_link link;
    uint64_t bytes; /* that its eviction would free */
    uint64_t used;  /* the order's clock at its last use */
    uint32_t holds; /* leases, pins, `keep`, work: while above 0 it is in no list */
    bool clean;
    bool needed;           /* its content must be kept, here or elsewhere */
    struct gb_recency *in; /* the order it belongs to, even while it is held; NULL: none */
};

/* Enters an entry into the order as the most recently used, and takes it out of its former order.
   If it is held, its last drop puts it into a list. */
void gb_recent_enter(struct gb_recency *recency, struct gb_recent *entry, uint64_t bytes);
/* Takes an entry out of its order; its holds stay counted. Does nothing if it belongs to none. */
void gb_recent_leave(struct gb_recent *entry);
/* A hold takes an entry off its list; the last drop puts it back as the most recently used. While
   the entry belongs to no order both only count. */
void gb_recent_hold(struct gb_recent *entry);
void gb_recent_drop(struct gb_recent *entry);
/* As gb_recent_drop, but puts the entry back to where it was: the hold was no use of it. */
void gb_recent_drop_unused(struct gb_recent *entry);
/* A use without a hold: makes the entry the most recently used. Does nothing if it is held or
   belongs to no order. */
void gb_recent_touch(struct gb_recent *entry);
/* Makes an entry clean or dirty, needed or not, without changing the order. */
void gb_recent_set(struct gb_recent *entry, bool clean, bool needed);
/* The least recently used: of all, of the clean, of the dirty; NULL if there is none. */
struct gb_recent *gb_recency_oldest(const struct gb_recency *recency);
struct gb_recent *gb_recency_oldest_clean(const struct gb_recency *recency);
struct gb_recent *gb_recency_oldest_dirty(const struct gb_recency *recency);
/* Counts the entries that were used before `entry`, which is not held: how many, and their bytes.
   Counts `most` entries at most. False if there are more. */
bool gb_recent_before(const struct gb_recent *entry, uint64_t most, uint64_t *count,
                      uint64_t *bytes);

/* The bytes whose content must be kept and does not go into `below` bytes of the tiers. */
static inline uint64_t gb_recency_stuck(const struct gb_recency *recency, uint64_t below)
{
    return recency->needed_bytes > below ? recency->needed_bytes - below : 0;
}

#endif
