/*
 * Cached leases: the library keeps them when their last reference is dropped, so that the next open
 * of the name finds them without asking the daemon: whether the name still means the object is read
 * in a page that the daemon writes (`cache` of docs/PROTOCOL.md). All with the client's lock held.
 *
 * A version that is opened once costs nothing: the library asks for the page when a version was
 * opened twice, and keeps only leases of such versions.
 *
 * A lease with a slot in the page is *listed* by its name, whether it is used or not; of each name
 * only the newest is. A listed lease that nobody uses is *cached*. It is given back when the daemon
 * recalls it, or wants a segment back that it lies in; and past a bound, the least recently used
 * first, unless more names are in use than there is room for: then most newcomers are not cached.
 * An open that finds it tells nobody; the daemon is told within a second that the lease is in use,
 * if it still is.
 */
#ifndef GB_LIB_CACHED_H
#define GB_LIB_CACHED_H

#include "client/lib/objects/lease.h"

struct gb_cached;

/* Makes the cached of a client that caches up to `most` leases, each for `ms` without a use.
   GPUBUF_E_NO_MEMORY. */
int gb_cached_prepare(struct gpubuf_client *client, size_t most, int64_t ms);
/* Frees the cached, at the end of the client. */
void gb_cached_end(struct gpubuf_client *client);
/* Whether there is a page, so that leases can be cached. */
bool gb_cached_begun(const struct gpubuf_client *client);

/* Takes a page and the daemon's pulse, whose descriptors stay the caller's; it is called when the
   daemon gives them. If the memory cannot be mapped, or could shrink, nothing is cached. */
void gb_cached_map(struct gpubuf_client *client, int fd, uint64_t slots, int pulse_fd);

/* The session is over: gives back all cached leases, and unlists the others. */
void gb_cached_forget(struct gpubuf_client *client);

/* Lists a lease that was granted to an open, if it has a slot. If there is no page yet, and the
   version was opened before, asks for one. */
void gb_cached_list(struct gb_client_lease *lease);
/* The object of that name (and version, unless 0), with a reference, if its lease is listed and
   still what the name means; else NULL. */
struct gpubuf_object *gb_cached_find(struct gpubuf_client *client, const char *name,
                                     uint64_t version);
/* The last reference to the lease was dropped. True: it is cached. False: it is not, and is no
   longer listed. */
bool gb_cached_add(struct gb_client_lease *lease);

/* The daemon wants leases back, or a segment. */
void gb_cached_recall(struct gpubuf_client *client, struct gb_json params);
void gb_cached_clear_segment(struct gpubuf_client *client, uint64_t segment);
/* Gives back the leases whose names mean something else by now: they count for the user. To be
   called before a request for memory, which would be refused while the daemon asks for them. */
void gb_cached_drop_stale(struct gpubuf_client *client);
/* Gives back the leases that were not used for long, and tells the daemon of those used since it
   was last told, and of those that are in use, unless for moments only. To be called now and then;
   it does so every GB_FLUSHER_SWEEP_MS at most. */
void gb_cached_sweep(struct gpubuf_client *client);

#endif
