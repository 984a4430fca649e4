/*
 * Closing descriptors that clients have sent. close() of such a descriptor may block for as long as
 * its sender likes: a TCP socket that lingers, a file of a file system in user space (FUSE), and
 * any socket in whose queue one of those lies. So the loop closes none of them. It hands them to
 * the *closers*, processes that do nothing else.
 *
 * Closers are processes rather than threads, since a close() that never returns cannot be ended,
 * not even by SIGKILL, and a thread in it would keep the whole daemon from ending. They share the
 * daemon's table of descriptors (CLONE_FILES). One more process, the sweeper, is their parent. It
 * is forked before the daemon has threads or much memory, so it can fork another closer for one
 * that was killed. It also closes the connections of a daemon that was killed while a closer is
 * stuck.
 *
 * Of each user, one descriptor is being closed at a time, and one ended connection; the rest waits
 * in the user's queues and counts as held_fds. A user whose closes are stuck uses up one closer and
 * his own limit; then the daemon stops receiving descriptors from that user. Connections have a
 * queue of their own since they do not get stuck: descriptors in their socket's queue are dropped,
 * not flushed.
 *
 * The loop's thread owns it all. Knows sockets and users, not sessions.
 */
#ifndef GB_CLOSER_H
#define GB_CLOSER_H

#include <semaphore.h>
#include <uv.h>

#include "daemon/serve/served.h"

#define GB_CLOSERS 8 /* processes: as many users may be stuck at a time */
#define GB_CLOSER_LOCKS 2

struct gb_closer;

/* Forks the processes, so call it before there are threads. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY.
   *closer is NULL in a build for valgrind (GB_NO_CLOSERS), which cannot run such processes. */
int gb_closer_new(struct gb_closer **closer, struct gb_error *error);
/* Has the loop read the processes' reports from now on. */
int gb_closer_start(struct gb_closer *closer, uv_loop_t *loop);
/* Names a lock of the daemon's (-1: none) that the sweeper releases if the daemon is killed. */
void gb_closer_unlocks(struct gb_closer *closer, int lock_fd);
/* Names a socket on which only the daemon listens. The sweeper shuts it down if the daemon is
   killed: else it might stay open, and clients would connect to it and get no answer. */
void gb_closer_shuts(struct gb_closer *closer, int listener_fd);

/* Takes over a descriptor that a client has sent, and charges `user` (NULL: nobody) until it is
   closed. Never blocks, unless `closer` is NULL: then it closes at once, as for a test. */
void gb_close_foreign(struct gb_closer *closer, struct gb_user *user, int fd);
/* Whether at least `most` descriptors of the user wait to be closed: then no more are received. */
bool gb_closer_is_behind(const struct gb_user *user, uint64_t most);
/* Whether descriptors come with the first `size` bytes to be received; does not receive them. */
bool gb_brings_descriptors(int fd, char *scratch, size_t size);
/* Takes over a connection, which must be in no epoll set any more, and hangs up at once. */
void gb_close_connection(struct gb_closer *closer, struct gb_user *user, int fd);

/* Gives the processes a moment, then forgets the users. Descriptors that are still open then are
   closed when the daemon has ended. NULL is fine. */
void gb_closer_stop(struct gb_closer *closer);
/* To be called after the loop has closed its handles. NULL is fine. */
void gb_closer_end(struct gb_closer *closer);

/* ---- closer_process.c: in the processes ---- */

enum gb_report_kind {
    GB_REPORT_CLOSED, /* from a closer */
    GB_REPORT_DIED,   /* from the sweeper: a closer has ended, and another waits to be asked for */
    GB_REPORT_FAILED, /* from the sweeper: a closer could not be started; it tries again */
};

/* To the daemon, over a pipe. */
struct gb_report {
    enum gb_report_kind kind;
    unsigned hand; /* the closer's number */
    int value;     /* the descriptor that is closed; the signal that ended it; errno */
};

/* Memory that the daemon shares with the processes. */
struct gb_helpers {
    _Atomic int locks[GB_CLOSER_LOCKS]; /* -1: none */
    _Atomic int listener;               /* -1: none */
    _Atomic bool ends;                  /* the daemon ends: so does the sweeper */
    struct {
        sem_t given;           /* posted when the closer has something to close */
        _Atomic int fd;        /* the descriptor */
        _Atomic bool is_asked; /* the sweeper is to start a closer */
    } hands[GB_CLOSERS];
};

#define GB_HELPER_WAKES SIGUSR2 /* has the sweeper look at `ends` and `is_asked` */

/* A child with the same descriptors, not with copies of them. */
pid_t gb_fork_sharing(void);
_Noreturn void gb_sweeper_run(pid_t daemon, struct gb_helpers *helpers, int reports_fd);

#endif
