/*
 * Descriptors in flight: sent to a peer and not received yet. The kernel counts them for the user
 * who sent them, the daemon's, all peers together, and refuses any more past RLIMIT_NOFILE; and
 * what lies unread in a socket stays counted when the sender closes its end. So a peer that does
 * not read could keep the daemon from sending a descriptor to anybody.
 *
 * Each user may have a part of them (GB_STOCK_FLIGHT). Descriptors sent to a session count until
 * its peer has read everything, which the kernel tells (SIOCOUTQ). A session whose user has no room
 * is
 * *grounded*: its output waits until there is. One that ends before its peer has read *lingers*:
 * the connection is shut down, but the socket stays open and charged until the peer has closed or
 * read. A session may have half of what is left for its user, and a user who has nothing in flight
 * may always be sent one message, so that whoever reads is served.
 *
 * The loop's thread.
 */
#ifndef GB_FLIGHT_H
#define GB_FLIGHT_H

#include "daemon/memory/user.h"

/* Of a session. Zeroed at first, but for `user` and `fd`. */
struct gb_flight {
    struct gb_link of_all;   /* while its count is not 0 */
    struct gb_link grounded; /* while its output waits */
    struct gb_user *user;    /* who is charged; not ours */
    int fd;                  /* the session's socket, to ask; not ours */
    uint64_t count;          /* descriptors that may be unread */
    bool lingers;
};

/* Of all sessions. */
struct gb_flights {
    struct gb_link all;
    struct gb_link grounded;
    uint64_t lingering;
    uint64_t look_at; /* when gb_flights_tend() has something to do; UINT64_MAX: never */
    uint64_t logged_ms;
    /* The session's output may be sent again. */
    void (*go_on)(struct gb_flight *flight);
    /* One that lingered has landed: its socket is to be closed. It is no more then. */
    void (*landed)(struct gb_flight *flight);
};

/* How many descriptors the kernel would take of this user now, at most `most`: a daemon that was
   killed has left some in flight, for as long as their receivers like. Found by sending them to
   ourselves, so other programs of this user are refused theirs for a moment. */
uint64_t gb_flight_measure(uint64_t most);

void gb_flights_init(struct gb_flights *flights);
/* How many descriptors the session may be sent now. */
uint64_t gb_flight_allowed(struct gb_flight *flight);
/* `count` descriptors were sent. */
void gb_flight_sent(struct gb_flights *flights, struct gb_flight *flight, unsigned count);
/* Its next message must wait; it is told to go on soon. */
void gb_flight_ground(struct gb_flights *flights, struct gb_flight *flight);
/* The session has ended. True if its socket may be closed; else that is shut down here, and closed
   when it has landed. */
bool gb_flight_end(struct gb_flights *flights, struct gb_flight *flight);
/* Looks after those that are grounded or linger, if it is time. */
void gb_flights_tend(struct gb_flights *flights, uint64_t now_ms);
/* All that linger have landed, whether they have or not. No session is left. */
void gb_flights_end(struct gb_flights *flights);

#endif
