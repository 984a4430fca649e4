/*
 * Writers of live memory (registry.h) that may outlive their connections. A process whose
 * connection has ended may go on writing: it may be stopped, or have closed nothing but the socket;
 * and what it has launched on a GPU runs until the driver has let go of the process. So when a
 * session ends, its leases for writing live memory go to a *straggler*, and end when the process is
 * over. The straggler is made when the session first writes live memory, so that nothing can fail
 * when the session ends.
 *
 * Not thread-safe: the loop's.
 */
#ifndef GB_STRAGGLER_H
#define GB_STRAGGLER_H

#include "daemon/objects/lease.h"

struct gb_straggler {
    struct gb_link link; /* in the registry's list, once its session has ended */
    struct gb_registry *registry;
    struct gb_holder holder; /* of the leases that its session left */
    int fd;                  /* of the process; owned */
    struct gb_charge charge; /* for that */
    char *client;            /* as the session's; owned */
};

/* `fd`, a descriptor of the process, is taken over in any case. `user` is charged for it.
   GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY, GPUBUF_E_UNSUPPORTED: the process cannot be told from later
   ones, since it is in another pid namespace. */
int gb_straggler_new(struct gb_registry *registry, int fd, pid_t pid, struct gb_user *user,
                     struct gb_straggler **straggler, struct gb_error *error);
/* The session has ended: the straggler takes its leases for writing live memory, unless the process
   is over, and then is freed with the last of them. `client` is taken over. */
void gb_straggler_follow(struct gb_straggler *straggler, struct gb_holder *from, char *client);
/* Makes a straggler of a writer of an earlier daemon, with its lease, if the process is not over.
   GPUBUF_E_NO_MEMORY; GPUBUF_E_SYSTEM. */
int gb_straggler_restore(struct gb_registry *registry, const struct gb_live_writer *writer,
                         struct gb_object *object, uint64_t now_ms);
/* The lease for writing that a straggler of the process has on the object; NULL: none has. */
struct gb_lease *gb_straggler_lease(const struct gb_object *object, const struct gb_user *user,
                                    pid_t pid);
/* Gives that lease to a session of the process. */
void gb_straggler_give(struct gb_lease *lease, struct gb_holder *to);
/* Ends the other leases that the process had in that session, which it does not know of. */
void gb_straggler_end_rest(struct gb_registry *registry, const struct gb_user *user, pid_t pid,
                           uint64_t session);

/* Ends the leases of stragglers whose process is over; to be called when the registry's descriptor
   `exits` can be read. */
void gb_stragglers_end_over(struct gb_registry *registry);
/* Ends all of them: so does the daemon. */
void gb_stragglers_end(struct gb_registry *registry);

#endif
