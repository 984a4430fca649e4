/*
 * The protocol of a service manager, systemd or our supervisor (sd_notify(3), sd_listen_fds(3)),
 * without systemd's library: tells the manager how the daemon is, has it keep descriptors for a
 * successor, and takes those that it handed over. Knows sockets and the environment, not the rest
 * of the daemon. Without a manager everything works and nothing is sent.
 *
 * A notice that the manager's socket does not take now is queued, and sent later, in order. Only
 * gb_notify_wait_sent() waits. Not thread-safe: the loop's thread owns it.
 */
#ifndef GB_NOTIFY_H
#define GB_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/errors.h"

/* The longest name of a descriptor that a manager takes. */
#define GB_NOTIFY_NAME_BYTES 255

/* The name of a descriptor that a supervisor hands over: a socket connected to it, in place of
   NOTIFY_SOCKET. */
#define GB_NOTIFY_SOCKET "gpubufd.socket" /* the one to listen on, also if it has no name */
#define GB_NOTIFY_CHANNEL "gpubufd.notify"

/* A descriptor that was handed over. */
struct gb_notify_fd {
    const char *name; /* "unknown" where the manager gave none */
    int fd;           /* ours, close-on-exec; -1: taken */
};

struct gb_notice;

struct gb_notify {
    struct sockaddr_un address;
    socklen_t address_length; /* 0: `socket` was handed over */
    int socket;               /* connected; -1: there is no manager */
    uint64_t most_fds;        /* descriptors that the manager keeps for us; 0: it does not say */
    uint64_t watchdog_ms;     /* the manager kills us when we are silent for this time; 0: never */
    struct gb_notify_fd *fds;
    unsigned fd_count;
    char *names; /* the names of fds point into it */

    struct gb_notice *queue, *last; /* not sent yet; NULL: there is none */
    uint64_t queued;                /* the number of the last notice that was queued */
    uint64_t try_at, pause_ms;      /* when to try the queue again */
    uint64_t taken_ms;              /* when one left the queue, or it began */
    bool beat;                      /* a sign of life is to be sent */
    uint64_t steps, extend_at;      /* of gb_notify_extend() */
    bool late; /* the manager has taken nothing for a second, until it has taken all */
    int error; /* errno of the last failure to send */
};

/* No manager. */
#define GB_NOTIFY_NONE ((struct gb_notify){.socket = -1})

/*
 * Reads NOTIFY_SOCKET, LISTEN_*, FDSTORE and WATCHDOG_*, and removes them from the environment, so
 * that no child takes them for its own. Ignores variables that are meant for another process. To be
 * called before anything opens a descriptor. On failure (GPUBUF_E_INVALID, GPUBUF_E_NO_MEMORY,
 * GPUBUF_E_SYSTEM) a sentence says what is wrong, *notify is GB_NOTIFY_NONE, and no handed-over
 * descriptor was closed.
 */
int gb_notify_begin(struct gb_notify *notify, struct gb_error *error);
/* Closes the descriptors that nobody took, and the connection; *notify is GB_NOTIFY_NONE then. */
void gb_notify_end(struct gb_notify *notify);

/* Takes the first descriptor of that name, which is the caller's from then on; -1 if there is none
   (left). */
int gb_notify_acquire_fd(struct gb_notify *notify, const char *name);
/* Takes fds[i]; -1 if it was taken. */
int gb_notify_acquire_fd_at(struct gb_notify *notify, unsigned i);
/* Closes the descriptors that nobody took, and has the manager forget their names, so that they are
   not handed over again and again; a name stays if another descriptor of that name was taken. */
void gb_notify_close_unused(struct gb_notify *notify);

/*
 * Each of these sends a notice or queues it: 0, also if there is no manager; GPUBUF_E_NO_MEMORY;
 * GPUBUF_E_SYSTEM, the descriptor is none. A notice that was sent reaches the manager even if we
 * die now.
 */
int gb_notify_send_ready(struct gb_notify *notify);
/* `for_good`: a supervisor starts no successor, and ends; systemd does as the unit says. */
int gb_notify_send_stopping(struct gb_notify *notify, bool for_good);
/* A sign of life passes those that are queued. */
int gb_notify_send_watchdog(struct gb_notify *notify);
/* To be called at each step of long work before gb_notify_send_ready(): now and then has the
   manager wait a minute more. */
void gb_notify_extend(struct gb_notify *notify);
/* A line for people; cut at its first line break, and after some 500 bytes. */
int gb_notify_send_status(struct gb_notify *notify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Has the manager keep a duplicate of `fd` for a successor, until gb_notify_unstore_fd(), even if
   it polls as hung up. Several may have the same name. GPUBUF_E_INVALID if the name is empty, too
   long, or has a colon or a character that is no printable ASCII. `fd` must stay open until the
   notice is sent, or the name is unstored. Keep names short: all of them
   together are one environment variable for the successor, which the kernel limits to 128 KiB. */
int gb_notify_store_fd(struct gb_notify *notify, const char *name, int fd);
/* Has the manager forget the descriptors of that name; or strikes a notice out that is queued. */
int gb_notify_unstore_fd(struct gb_notify *notify, const char *name);

/* Sends what is queued, as far as the socket takes it. To be called at gb_notify_due() (UINT64_MAX:
   nothing is queued). */
void gb_notify_flush(struct gb_notify *notify);
uint64_t gb_notify_due(const struct gb_notify *notify);
/* Waits until nothing is queued. False if that takes longer. */
bool gb_notify_wait_sent(struct gb_notify *notify, uint64_t timeout_ms);
/* Whether the notices up to that number were sent. */
bool gb_notify_has_sent(const struct gb_notify *notify, uint64_t number);

#endif
