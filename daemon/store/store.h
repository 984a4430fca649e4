/*
 * Where objects lie: decides when a segment is made, kept for reuse, retired, destroyed, and which
 * storage lies in which. Knows devices by their table of functions; knows no sockets. Not
 * thread-safe: the loop's.
 */
#ifndef GB_STORE_H
#define GB_STORE_H

#include "daemon/store/making.h"
#include "daemon/store/mapper.h"
#include "daemon/store/storage.h"

void gb_store_init(struct gb_store *store);
/* Gives every empty segment back. To be followed by the end of the devices' movers. */
void gb_store_clear(struct gb_store *store);
/* To be called after the end of every storage, mapper and job. */
void gb_store_end(struct gb_store *store);

enum gb_place {
    GB_PLACE_OK = 0,
    GB_PLACE_FULL = 1,   /* no room now; `shortfall` says how many bytes are missing. Sessions may
                            have been asked to unmap empty segments */
    GB_PLACE_MAKING = 2, /* memory is being made: try again when the device's space has changed */
    GB_PLACE_QUOTA = 3,  /* the user holds too much, but some of that is being given back: try again
                            when the device's space has changed. *error is set, for the case that it
                            is not tried again */
};

/* A storage that is looking for its place. */
struct gb_placing {
    struct gb_store *store;
    const struct gb_domain_key *key;
    struct gb_user *user;
    uint64_t bytes; /* of the content */
    /* To be placed is registered memory, that is adopted; count 0: not. */
    const struct gb_adoption *adoptions;
    unsigned count;
    struct gb_making *making; /* of the request, if it has waited; else NULL */
    /* One that has left its device, and comes back; or NULL, and on OK the one that was made, with
       one reference and no hold. */
    struct gb_storage *storage;
    uint64_t shortfall;        /* on FULL */
    struct gb_making_job *job; /* on MAKING: was begun, for gb_making_attach; NULL: an earlier job
                                  will do */
    struct gb_error *error;    /* the caller's */
};

/* Makes a storage and finds its place, or finds one for a storage that comes back, which the caller
   makes resident when the content is there, too. An enum gb_place, or GPUBUF_E_NO_SPACE (it can
   never fit), _LIMIT, _DEVICE, _NO_MEMORY. */
int gb_store_place(struct gb_placing *placing);
/* Gives a storage's room on its device back: its content is in a tier below, or lost. */
void gb_storage_vacate(struct gb_store *store, struct gb_storage *storage);

/* Gives empty segments of a device back until `bytes` of them are freed or retiring: first those
   that nobody maps, then those that sessions have to unmap; of each the oldest first. Returns the
   bytes freed at once. */
uint64_t gb_store_trim(struct gb_store *store, struct gb_device *device, uint64_t bytes);

/* Bytes of a device that are free, that come free soon, or that are in empty segments which nobody
   maps, also in those that are kept for a request. Counting stops at `enough`. */
uint64_t gb_store_reachable_bytes(const struct gb_store *store, const struct gb_device *device,
                                  uint64_t soon, uint64_t enough);

/* Gives segments back that have been empty for `retire_after_ms`, and notes the time for those that
   ran empty since the last call. Returns when to call it again; UINT64_MAX: not before a segment
   runs empty. */
uint64_t gb_store_retire_idle(struct gb_store *store, uint64_t now_ms);

struct gb_segment *gb_store_segment(const struct gb_store *store, uint64_t id);

/* ---- segments: among store.c, making.c and mapper.c ---- */

/* Makes an empty segment of memory that was made or adopted, which it takes over. NULL if the
   daemon's own memory is out. */
struct gb_segment *gb_segment_new(struct gb_store *store, enum gb_segment_kind kind,
                                  const struct gb_domain_key *key, struct gb_user *user,
                                  uint64_t bytes, const struct gb_memory *memory);
/* Gives an empty segment back, at once if nobody maps it, else as soon as nobody does. Returns the
   bytes freed at once: none if the mover does it. */
uint64_t gb_segment_retire(struct gb_store *store, struct gb_segment *segment);
/* Counts the segment as mapped, or not any more. */
void gb_segment_mapped(struct gb_segment *segment, bool mapped);
/* The segment has one mapper less. If it is retiring and has none, it is destroyed. */
void gb_segment_unmapped(struct gb_store *store, struct gb_segment *segment);

#endif
