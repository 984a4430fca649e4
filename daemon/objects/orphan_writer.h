/*
 * Writers of live memory (registry.h), and readers that take part in a stream (stream.h), which may
 * outlive their connections. A process whose connection has ended may still write: it may be
 * stopped, or have closed nothing but the socket; and what it has launched on a GPU runs until the
 * driver has let go of the process. A reader may still hold frames. So when a session ends, its
 * leases for writing live memory, and those that take part in a stream, go to an *orphan writer*,
 * and end when the process has exited. The orphan writer is made before the first of them, so that
 * nothing can fail when the session ends.
 *
 * All sessions and orphan writers of one process share its record, and with it one descriptor of
 * the process. A successor makes the same of the journal's writers. If it has no descriptor for a
 * process, or cannot tell whether it is the one that wrote, the process counts as running, and is
 * looked for again WATCH_MS later, until it is watched or known to have ended. A lease that a
 * session of the process takes back needs no descriptor, and is charged already.
 *
 * Not thread-safe: the loop's.
 */
#ifndef GB_ORPHAN_WRITER_H
#define GB_ORPHAN_WRITER_H

#include "daemon/objects/lease.h"

/* A process that writes live memory, or takes part in a stream. */
struct gb_writer_process {
    struct gb_hash_link link; /* by pid */
    struct gb_link of_all;
    struct gb_link unwatched; /* in the registry's list while there is no descriptor */
    struct gb_registry *registry;
    pid_t pid;
    uint64_t started;
    int fd;                  /* of the process; owned; -1: there is none yet */
    struct gb_charge charge; /* for that; its user is the process' */
    struct gb_link orphans;
    size_t references; /* of sessions and orphan writers */
};

struct gb_orphan_writer {
    struct gb_hash_link link;          /* by the session's number */
    struct gb_link of_process;         /* in its list, once its session has ended */
    struct gb_writer_process *process; /* counted */
    struct gb_holder holder;           /* of the leases that its session left */
    char *client;                      /* as the session's; owned */
};

/* Makes one for a session whose socket and holder these are. A user may have as many as sessions.
   GPUBUF_E_DEVICE, GPUBUF_E_LIMIT, GPUBUF_E_NO_MEMORY; GPUBUF_E_UNSUPPORTED: the process that
   connected has exited, or cannot be told from later ones, since it is in another pid namespace. */
int gb_orphan_writer_new(struct gb_registry *registry, int socket, struct gb_holder *holder,
                         struct gb_orphan_writer **orphan, struct gb_error *error);
/* GPUBUF_E_UNSUPPORTED: its process has exited, and another one has its connection, whose end would
   not be seen. */
int gb_orphan_writer_check(const struct gb_orphan_writer *orphan, struct gb_error *error);
/* The session has ended: the orphan writer takes its leases that may outlive it, unless the process
   has exited, and then is freed with the last of them. `client` is taken over. */
void gb_orphan_writer_follow(struct gb_orphan_writer *orphan, struct gb_holder *from, char *client);
/* Gives the holder of an earlier daemon's lease that lease, unless the process has ended.
   GPUBUF_E_NO_MEMORY. */
int gb_orphan_writer_restore(struct gb_registry *registry, const struct gb_live_lease *former,
                             struct gb_object *object, uint64_t now_ms, struct gb_lease **lease);

/* A session whose process comes back for leases: it, or the daemon, lost its connection. */
struct gb_returning {
    struct gb_holder *holder;
    struct gb_orphan_writer **orphan; /* made if it has none */
    uint64_t former;                  /* its former session; 0: not said */
};

/* The lease for writing that the process had, or (`reader` is not -1) that took part in the stream
   with that number, if an orphan writer has it: of the former session rather than of another. From
   then on gb_orphan_writers_end_rest() spares it. GPUBUF_E_NOT_FOUND;
   GPUBUF_E_SYSTEM: it cannot be told whether the process is the one that had it. */
int gb_orphan_writer_lease(const struct gb_registry *registry, const struct gb_returning *returning,
                           const struct gb_string *name, uint64_t version, int reader,
                           struct gb_lease **lease);
/* Moves the lease to the present session. GPUBUF_E_NO_MEMORY: nothing has changed. */
int gb_orphan_writer_resume(struct gb_lease *lease, const struct gb_returning *returning);
/* Ends the leases that are left of the former session: the process does not know of them. But not
   those on objects that the present one writes, nor those that it asked for and that could not be
   given back, and only as many as there is time for. */
void gb_orphan_writers_end_rest(struct gb_registry *registry, const struct gb_returning *returning);

/* Ends one that an orphan writer has. */
void gb_orphan_writer_end_lease(struct gb_lease *lease);

/* Ends leases of processes that have exited; to be called when the registry's descriptor `exits`
   can be read. */
void gb_orphan_writers_end_exited(struct gb_registry *registry);
/* Looks again for processes that are not watched; to be called at the registry's `watch_at`. */
void gb_orphan_writers_watch(struct gb_registry *registry, uint64_t now_ms);
/* Ends all of them: so does the daemon. */
void gb_orphan_writers_end(struct gb_registry *registry);

#endif
