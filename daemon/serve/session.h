/*
 * One peer: its socket, its credentials, and everything that ends with its connection: leases,
 * unsealed objects, watches, waiting requests, the account of what it maps.
 */
#ifndef GB_SESSION_H
#define GB_SESSION_H

#include "daemon/serve/server.h"
#include "proto/conn.h"
#include "proto/rpc.h"

/* Output piles up to this much before the rest of a session's requests has to wait. */
#define GB_SESSION_THROTTLE_BYTES (256u << 10)
/* So much is sent to it at a time. */
#define GB_SESSION_SEND_BYTES (64u << 10)
/* Of what it held when it ended so many leases and mappings go back at once. The rest follows, in slices
   of time, or as soon as somebody asks for what depends on it. */
#define GB_SESSION_LEAVES_ITEMS 64
/* With so little kept it does not pay for what is kept for others of its user. */
#define GB_SESSION_SPARED_BYTES (64u << 10)
/* For so long a session is served at a time, for half of it one that is busy. What else it has sent waits
   for those who have sent less. A request that takes longer pauses. */
#define GB_SESSION_SLICE_NS 100000u
/* So much is received first, and more at a time only if that took no more than a tenth of a slice. */
#define GB_SESSION_PIECE_BYTES 4096
/* What somebody who is gone has sent is served before anybody else is if it is no more than so much, or
   if there are unsealed objects, for so long. The rest has its turn like that of others, without leases,
   mappings, watches and waits. */
#define GB_SESSION_LAST_BYTES 1024
#define GB_SESSION_DRAIN_NS 10000000u
/* Who sends more at a time is busy, and comes after those who do not; so is who sends no whole line. */
#define GB_SESSION_MODEST_LINES 4

struct gb_session {
    struct gb_server *server;
    struct gb_link of_server, ready, dirty, modest, gone, leaving;
    uint64_t id;
    uv_poll_t poll;
    int poll_events; /* what is polled for now */
    struct gb_conn conn;
    struct gb_user *user;
    pid_t pid;
    gid_t gid;
    gid_t *groups;   /* supplementary ones, asked for when first needed; owned */
    int group_count; /* -1: not asked yet */
    char *client;    /* the name it gave; owned; NULL if none */
    bool greeted, ended;
    bool closed;        /* ended, and the loop has forgotten it */
    bool serving;       /* a request of its own: it does not end in the middle of that */
    bool hung_up;       /* its end was noted while it was being served */
    bool late;          /* so much that it was not served at once: it goes on in slices */
    bool deaf;          /* nobody will read what it is sent */
    bool throttled;     /* it does not read its replies: not served until it does */
    bool behind;        /* has lines that wait for its next slice */
    bool busy;          /* sent much, or used its slice up: served after those who did not */
    const char *doomed; /* why it is to end at the end of the turn; NULL: it is not */

    struct gb_holder holder;
    struct gb_mapper mapper;
    struct gb_link watches, waits;
    struct gb_link produced;       /* objects that are withdrawn when it ends */
    uint64_t held_bytes, held_fds; /* that its user is charged with */
    uint64_t unsealed, watch_count, unsynced, wait_count; /* unsynced: watches */
    struct gb_timer half_line;
};

/* Takes over the accepted socket; on failure it is closed. */
int gb_session_new(struct gb_server *server, int fd);
/* Receives once and serves what has arrived, or, at the end of the stream, ends. */
void gb_session_serve(struct gb_session *session);
/* Queues a message with descriptors, which are taken over. Sent at the end of the turn at the
   latest. A session that lets too much pile up is doomed. Never ends a session by itself. */
void gb_session_send(struct gb_session *session, const struct gb_writer *message, const int *fds,
                     unsigned count);
/* The same, and may take the message's memory with it. */
void gb_session_answer(struct gb_session *session, struct gb_writer *message, const int *fds,
                       unsigned count);
/* Sends what is queued, as far as the socket takes it, and no more than so many bytes. */
void gb_session_flush(struct gb_session *session, size_t most);

/* ---- ending: departure.c ---- */

/* Gives back all that it held, though not all of it at once; its memory is freed by the loop.
   Idempotent. */
void gb_session_end(struct gb_session *session, const char *why);
/* Gives back what ended sessions held, as long as there is time (`until`: of uv_hrtime(); UINT64_MAX:
   all of it). */
void gb_sessions_give_back(struct gb_server *server, uint64_t until);
/* Ends those whose peers have hung up. False if, in a pause, any are left that hold something. */
bool gb_sessions_end_hung_up(struct gb_server *server);
/* Whether it is gone, but still holds something that others could see. */
bool gb_session_lingers(const struct gb_session *session);

/* ---- rights ---- */

bool gb_session_is_admin(const struct gb_session *session); /* root, or the daemon's own uid */
bool gb_session_may_read(struct gb_session *session, const struct gb_object *object);
/* That, of an object of which no more is known. */
bool gb_session_may_read_of(struct gb_session *session, uid_t uid, gid_t gid, unsigned mode);
bool gb_session_may_change(struct gb_session *session, const struct gb_object *object);

#endif
