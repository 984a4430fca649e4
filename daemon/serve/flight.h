/*
 * Descriptors in flight: sent to a peer and not received yet. The kernel counts those of all peers
 * together for the daemon's user, and sends no more beyond RLIMIT_NOFILE. They stay counted when
 * the daemon closes the socket. So a peer that does not read could keep the daemon from sending a
 * descriptor to any other.
 *
 * Each user may have a part of them (GB_STOCK_FLIGHT). Descriptors sent to a session count until
 * its peer has read everything, which the kernel tells (SIOCOUTQ). A session whose user has no room
 * is *grounded*: its output waits. A session that ends before its peer has read everything
 * *lingers*: the connection is shut down, but the socket stays open and charged until the peer has
 * read or closed; then it has *landed*. A session may have half of what is left for its user. A
 * user who has nothing in flight may always be sent one message, so that a peer that reads is
 * served.
 *
 * The loop's thread.
 */
#ifndef GB_FLIGHT_H
#define GB_FLIGHT_H

#include "daemon/store/user.h"

/* The descriptors of one session. Zeroed at first, but for the charge's user and `fd`. */
struct gb_flight {
    struct gb_link of_all;   /* while its count is not 0 */
    struct gb_link grounded; /* while its output waits */
    int fd;                  /* the session's socket; not ours */
    struct gb_charge charge; /* GB_STOCK_FLIGHT: descriptors that may be unread */
    bool lingers;
};

/* The descriptors of all sessions. Zeroed at first, but for `check_at` and the functions. */
struct gb_flights {
    struct gb_link all;
    struct gb_link grounded;
    uint64_t lingering;
    uint64_t check_at; /* when gb_flights_check() has something to do; UINT64_MAX: never */
    /* Sends the session's output again. */
    void (*resend)(struct gb_flight *flight);
    /* Closes the socket of a session that lingered and has landed; `flight` may be freed by
       that. */
    void (*landed)(struct gb_flight *flight);
};

/* How many descriptors the kernel would send for this user now, at most `most`: those of a daemon
   that was killed may be in flight for as long as their receivers like. Measures it by sending
   descriptors to ourselves, so the kernel refuses those of this user's other programs for a moment.
 */
uint64_t gb_flight_measure(uint64_t most);

/* How many descriptors the session may be sent now. */
uint64_t gb_flight_allowed(struct gb_flight *flight);
/* `count` descriptors were sent. */
void gb_flight_sent(struct gb_flights *flights, struct gb_flight *flight, unsigned count);
/* The session's next message must wait; `resend` is called for it soon. */
void gb_flight_ground(struct gb_flights *flights, struct gb_flight *flight);
/* The session has ended. True if its socket may be closed now; else the session lingers: the socket
   is shut down here, and `landed` closes it. */
bool gb_flight_end(struct gb_flights *flights, struct gb_flight *flight);
/* Looks after sessions that are grounded or linger, if it is time. */
void gb_flights_check(struct gb_flights *flights, uint64_t now_ms);
/* Calls `landed` for all that linger, whether or not their peers have read. To be called when no
   other session is left. */
void gb_flights_end(struct gb_flights *flights);

#endif
