/*
 * The daemon's store as a cache of its own: over a device without real memory, where the least
 * recently used objects are evicted when there is no room. The daemon's choices, without sessions,
 * messages and memory. Not for threads.
 */
#ifndef CACHE_H
#define CACHE_H

#include "daemon/store/store.h"

struct cache_object {
    struct gb_link recent;      /* unlinked if it has no bytes */
    struct gb_storage *storage; /* NULL: it is not there */
    uint64_t bytes;             /* asked for */
};

struct cache {
    struct gb_device device;
    struct gb_store store;
    struct gb_user *user;
    struct gb_domain_key key;
    struct gb_link recency;       /* the least recently used first */
    struct cache_object *objects; /* by number */
    size_t count;
    uint64_t asked;   /* bytes of the objects that are there */
    uint64_t changes; /* objects that came or went */
};

/* Ends the program if memory is out. `count`: objects are numbered from 0. */
void cache_begin(struct cache *cache, uint64_t capacity, size_t count);
/* Drops everything. */
void cache_end(struct cache *cache);
/* Makes an object, or another version of it, the most recently used; what it takes goes first. */
void cache_create(struct cache *cache, size_t number, uint64_t bytes);
/* Makes it the most recently used; false if it is not there. */
bool cache_open(struct cache *cache, size_t number);
void cache_drop(struct cache *cache, size_t number); /* fine if it is not there */

#endif
