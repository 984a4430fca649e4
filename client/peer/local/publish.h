/*
 * Publishes the objects of this machine's daemon that other machines may have (described.h) in the
 * directory, and withdraws them when they go. A publisher is told the daemon's events. It publishes
 * an object once, and again if the directory says that it has forgotten the object. If another
 * machine has the name, the object is not published until a newer version is sealed, which is tried
 * anew. While the directory is not there the publisher tries every second.
 *
 * Users take turns, so that a user who shares a hundred thousand names holds up nobody else's. A
 * user may have `user_names` names, since all users share the directory, and the memory that it
 * takes on every machine.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_PUBLISH_H
#define GB_PEER_PUBLISH_H

#include <uv.h>

#include "client/peer/base/parts.h"
#include "client/peer/directory/directory.h"
#include "gpubuf.h"

struct gb_peer_publisher;

/* The directory outlives the publisher, or is closed just before. NULL: memory is out. */
struct gb_peer_publisher *gb_peer_publisher_new(const struct gb_peer_parts *parts,
                                                unsigned user_names);
/* Withdraws nothing: names go with the lease. Its handle is closed some turns later. */
void gb_peer_publisher_free(struct gb_peer_publisher *publisher);

/* To be called when the directory tells its state. */
void gb_peer_publisher_state(struct gb_peer_publisher *publisher, bool is_there, bool forgot);

/* The daemon's events. A version is there, and `shared` with other machines or not; or it is no
   more. */
void gb_peer_publisher_on_object(struct gb_peer_publisher *publisher,
                                 const struct gpubuf_info *info, bool shared);
/* All objects are told again, up to `synced`. `anew`: by a new daemon, whose versions have nothing
   to do with those of the former one. */
void gb_peer_publisher_reconnected(struct gb_peer_publisher *publisher, bool anew);
void gb_peer_publisher_synced(struct gb_peer_publisher *publisher);

/* To be called when the directory tells that a name has another revision; 0: none. */
void gb_peer_publisher_changed(struct gb_peer_publisher *publisher, const char *name,
                               uint64_t revision);

struct gb_peer_publish_figures {
    uint64_t shared;    /* objects that others may have */
    uint64_t published; /* of these, in the directory */
    uint64_t refused;   /* of these, because another machine has the name */
    uint64_t failures;  /* of requests to publish, since the start */
    uint64_t over;      /* times that an object was not published because of user_names */
    uint64_t taken;     /* names that became this machine's, after they had been another's */
};
struct gb_peer_publish_figures gb_peer_publisher_figures(const struct gb_peer_publisher *publisher);

#endif
