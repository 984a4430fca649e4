/*
 * Leases that the library keeps when their last reference is gone, so that the next open of the
 * name finds them without asking the daemon: whether the name still means the object is read in a
 * page that the daemon writes (docs/PROTOCOL.md, keep). All with the client's lock held.
 *
 * A lease with a slot in the page is *listed* by its name, used or not, and the newest of a name
 * only. A lease that nobody uses is kept; the least recently used is given back first when there is
 * too much of it, or when the daemon recalls it, or wants a segment back that it lies in.
 */
#ifndef GB_LIB_KEEP_H
#define GB_LIB_KEEP_H

#include "client/lib/objects/lease.h"

struct gb_keeper;

struct gb_keep_bounds {
    size_t leases; /* 0: nothing is kept */
    uint64_t bytes;
    int64_t ms; /* without a use */
};

/* For a client that is to keep leases: `client->keeper`. GPUBUF_E_NO_MEMORY. */
int gb_keep_prepare(struct gpubuf_client *client, const struct gb_keep_bounds *bounds);
/* With the client. */
void gb_keep_end(struct gpubuf_client *client);

/* Takes a page and the daemon's pulse, whose descriptors stay the caller's. Memory that cannot be
   mapped, or could shrink, is of no use: then nothing is kept. */
void gb_keep_map(struct gpubuf_client *client, int fd, uint64_t slots, int pulse_fd);
/* The session is over: nothing that was kept is believed any more, nor kept. */
void gb_keep_forget(struct gpubuf_client *client);

/* A lease was granted: listed, if it has a slot. */
void gb_keep_list(struct gb_holding *lease);
/* The object of that name (and version, unless 0), with a reference, if its lease is listed and
   still what the name means; else NULL. */
struct gpubuf_object *gb_keep_find(struct gpubuf_client *client, const char *name,
                                   uint64_t version);
/* Nobody refers to the lease any more: true, and it is kept; false, and it is listed no more. */
bool gb_keep_take(struct gb_holding *lease);

/* The daemon wants leases back; it wants a segment back. */
void gb_keep_recall(struct gpubuf_client *client, struct gb_json params);
void gb_keep_clear_segment(struct gpubuf_client *client, uint64_t segment);
/* Gives back what has not been used for long, and tells of what has been used since it was told. To
   be called now and then. */
void gb_keep_sweep(struct gpubuf_client *client);

#endif
