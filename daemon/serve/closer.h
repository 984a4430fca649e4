/*
 * Closing what strangers have sent. close() of a received descriptor may block for as long as its
 * sender likes: a TCP socket that lingers, a file of a file system in user space (FUSE), and any
 * socket in whose queue one of those lies. So the loop closes none of them. It hands them to
 * processes that do nothing else.
 *
 * They are processes, and share the daemon's table of descriptors (CLONE_FILES): a close that never
 * returns can neither be ended nor be waited for, not even by SIGKILL, and a thread in it would
 * keep the whole daemon from ending. They were forked before the daemon had threads or memory worth
 * speaking of, and use nothing of what they share with it but the descriptors. One more of them,
 * the sweeper, closes the connections of a daemon that was killed while one of the others is stuck.
 *
 * One descriptor of each user is being closed at a time, and one connection that has ended; the
 * rest waits in the user's queues and counts as held_fds. A user whose closes are stuck uses up one
 * process and his own limit, and then none of his descriptors are received any more. Connections
 * are apart from the others since they do not get stuck: what lies in their queues unreceived is
 * let go, not flushed.
 *
 * The loop's thread owns it all. Knows sockets and users, and nothing of sessions.
 */
#ifndef GB_CLOSER_H
#define GB_CLOSER_H

#include <uv.h>

#include "daemon/memory/user.h"

#define GB_CLOSERS 8 /* processes: as many users may be stuck at a time */
#define GB_CLOSER_LOCKS 2

struct gb_closer;

/* Forks: call it before there are threads. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. *closer is NULL
   under valgrind, which knows no such processes. */
int gb_closer_new(struct gb_closer **closer, struct gb_error *error);
/* From here on it has a loop to hear from the processes on. */
int gb_closer_start(struct gb_closer *closer, uv_loop_t *loop);
/* A lock of the daemon's (-1: none) that is given up for it if it is killed. */
void gb_closer_unlocks(struct gb_closer *closer, int lock_fd);
/* A socket that only the daemon listens on: if the daemon is killed it is shut down at once, so
   that nobody connects to a socket that is merely still open. */
void gb_closer_shuts(struct gb_closer *closer, int listener_fd);

/* Takes over a descriptor that somebody sent. `user`: who is charged until it is closed; NULL:
   nobody. `closer` NULL: closes at once, as for a test. Never blocks otherwise. */
void gb_close_foreign(struct gb_closer *closer, struct gb_user *user, int fd);
/* Whether more than `most` descriptors of the user wait to be closed: then no more are received. */
bool gb_closer_is_behind(const struct gb_user *user, uint64_t most);
/* Whether descriptors lie among the first `size` bytes to be received, without receiving them. */
bool gb_brings_descriptors(int fd, char *scratch, size_t size);
/* Takes over a connection, which is in no epoll set any more, and hangs up at once. */
void gb_close_connection(struct gb_closer *closer, struct gb_user *user, int fd);

/* Gives the processes a moment, then forgets the users; what is not closed by then is when the
   daemon has ended. NULL is fine. */
void gb_closer_stop(struct gb_closer *closer);
/* After the loop has closed its handles. NULL is fine. */
void gb_closer_end(struct gb_closer *closer);

/* ---- closer_process.c: in the processes ---- */

struct gb_closing {
    int fd;
    unsigned hand; /* told back when it is closed */
};

/* The sweeper's state, in memory that it shares with the daemon. */
struct gb_sweep {
    _Atomic int locks[GB_CLOSER_LOCKS]; /* -1: none */
    _Atomic int listener;               /* -1: none */
};

_Noreturn void gb_closer_run(pid_t daemon, int closings_fd, int closed_fd);
_Noreturn void gb_sweeper_run(pid_t daemon, const struct gb_sweep *sweep);

#endif
