/*
 * Chained hash tables, whose entries embed a link. A table grows and shrinks step by step, so that
 * no single insert pays for moving a million entries. Keys are hashed with a secret seed, so that
 * no client can choose names that collide. Not thread-safe.
 */
#ifndef GB_HASH_H
#define GB_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gb_hash_link {
    struct gb_hash_link *next;
    uint64_t hash;
};

struct gb_hash_table {
    struct gb_hash_link **slots, **old_slots; /* old: being emptied while growing or shrinking */
    size_t mask, old_mask, old_next;
    size_t count;
};

/* SipHash-1-3 of the bytes under a 128-bit key drawn once per process from getrandom(2). This one
   is thread-safe. */
uint64_t gb_hash_bytes(const void *data, size_t length);
/* SipHash-c-d under a given key, for tests against published results. */
uint64_t gb_hash_sip(unsigned c, unsigned d, const uint64_t key[2], const void *data,
                     size_t length);
/* A mix of an integer that no client chooses, such as the daemon's own ids. */
uint64_t gb_hash_id(uint64_t id);

/* A zeroed table is an empty one (allocated by the first insert). */
void gb_hash_end(struct gb_hash_table *table); /* frees the slots, not the entries */
/* Has an empty table begin with slots for `count` entries. If memory is out it begins with few. */
void gb_hash_reserve(struct gb_hash_table *table, size_t count);
/* False if memory is out; the entry is then not in the table. Only the first insert into an empty
   table can fail: if the table cannot grow, later ones use the slots that it has. Entries may have
   equal hashes. */
bool gb_hash_insert(struct gb_hash_table *table, struct gb_hash_link *link, uint64_t hash);
/* The entry must be in the table. Slots are given back, step by step, when few entries are left. */
void gb_hash_remove(struct gb_hash_table *table, struct gb_hash_link *link);
/* The entries of equal hash, for the caller to compare keys. An insert or a remove ends the walk.
       for (link = gb_hash_first(table, h); link; link = gb_hash_next(link)) */
struct gb_hash_link *gb_hash_first(const struct gb_hash_table *table, uint64_t hash);
struct gb_hash_link *gb_hash_next(const struct gb_hash_link *link);

#endif
