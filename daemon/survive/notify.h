/*
 * The protocol of a service manager, systemd or whoever speaks the same (sd_notify(3),
 * sd_listen_fds(3)), without its library: telling it how we are, having it keep descriptors for
 * whoever comes after us, and taking what it handed over. Knows sockets and the environment, and
 * nothing of the rest of the daemon. Without a manager everything works and nothing is sent.
 *
 * No call here waits but gb_notify_wait(). Not thread-safe: the loop's thread owns it.
 */
#ifndef GB_NOTIFY_H
#define GB_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/errors.h"

/* A positive outcome of sending: the manager's queue is full. See gb_notify_wait(). */
#define GB_NOTIFY_FULL 1

/* The longest name of a descriptor that a manager takes. */
#define GB_NOTIFY_NAME_BYTES 255

/* The name of a descriptor that a supervisor hands over: a socket connected to it, in place of
   NOTIFY_SOCKET. */
#define GB_NOTIFY_CHANNEL "gpubufd.notify"

/* A descriptor that was handed over. */
struct gb_notify_fd {
    const char *name; /* "unknown" where the manager gave none */
    int fd;           /* ours, close-on-exec; -1: taken */
};

struct gb_notify {
    struct sockaddr_un address;
    socklen_t address_length; /* 0: `socket` was handed over */
    int socket;               /* connected; -1: there is no manager */
    uint64_t most_fds;        /* that the manager keeps for us; 0: it does not say */
    uint64_t watchdog_ms;     /* we are given up when silent for as long; 0: never */
    struct gb_notify_fd *fds;
    unsigned fd_count;
    char *names; /* what the names of fds point into */
};

/* No manager. */
#define GB_NOTIFY_NONE ((struct gb_notify){.socket = -1})

/*
 * Reads NOTIFY_SOCKET, LISTEN_*, FDSTORE and WATCHDOG_*, and removes them from the environment, so
 * that no child takes them for its own. Variables addressed to another process are left alone. Call
 * it before anything opens a descriptor. On failure (GPUBUF_E_INVALID, GPUBUF_E_NO_MEMORY,
 * GPUBUF_E_SYSTEM) a sentence says what is wrong with it, *notify is GB_NOTIFY_NONE, and no
 * descriptor was closed.
 */
int gb_notify_begin(struct gb_notify *notify, struct gb_error *error);
/* Closes the descriptors that nobody took, and the connection; what remains is GB_NOTIFY_NONE. */
void gb_notify_end(struct gb_notify *notify);

/* Takes the first descriptor of that name, which is the caller's from then on; -1 if there is none
   (left). All of them: walk over `fds` and gb_notify_take_at(). */
int gb_notify_take(struct gb_notify *notify, const char *name);
int gb_notify_take_at(struct gb_notify *notify, unsigned i);
/* Closes what nobody took, and has the manager forget it, so that it is not handed over for ever;
   but not where one of the same name was taken, which it would forget, too. Waits for a manager
   that is slow; what one does not take in a second is handed over again. */
void gb_notify_drop(struct gb_notify *notify);

/*
 * Each sends one message: 0 if it was queued, or if there is no manager; GB_NOTIFY_FULL;
 * GPUBUF_E_SYSTEM with errno set. Queued messages reach the manager even if we die now.
 */
int gb_notify_ready(struct gb_notify *notify);
int gb_notify_stopping(struct gb_notify *notify);
/* To be followed by gb_notify_ready(). */
int gb_notify_reloading(struct gb_notify *notify);
int gb_notify_watchdog(struct gb_notify *notify);
/* A line for people; cut at its first line break, and after some 500 bytes. */
int gb_notify_status(struct gb_notify *notify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The process that the manager is to take for the service's main one. */
int gb_notify_main_pid(struct gb_notify *notify, int pid);
/* Has the manager keep a duplicate of `fd`, for whoever is started after us, until it is removed;
   not even what polls as hung up is dropped before. Several may have the same name, which is
   GPUBUF_E_INVALID if empty, too long, or with a colon or what is no printable ASCII. Keep names
   short: all of them together come back in one variable, and no program is started with one of more
   than 128 KiB. */
int gb_notify_store(struct gb_notify *notify, const char *name, int fd);
/* Forgets all that are kept under that name. */
int gb_notify_unstore(struct gb_notify *notify, const char *name);

/* Waits until there is room in the manager's queue: 0; GPUBUF_E_TIMEOUT; GPUBUF_E_SYSTEM. */
int gb_notify_wait(struct gb_notify *notify, int timeout_ms);

#endif
