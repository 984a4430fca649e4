/*
 * One peer: its socket, its credentials, and everything that ends with its connection: leases,
 * unsealed objects, watches, waiting requests, the account of what it maps.
 */
#ifndef GB_SESSION_H
#define GB_SESSION_H

#include "daemon/objects/lease.h"
#include "daemon/serve/served.h"
#include "daemon/serve/server.h"
#include "daemon/store/mapper.h"
#include "proto/wire/conn.h"
#include "proto/wire/rpc.h"

/* With more unsent output than this, or with an unsent descriptor, a session's further requests
   wait (backpressure). */
#define GB_SESSION_THROTTLE_BYTES (256u << 10)
/* The most that is sent to a session at a time. */
#define GB_SESSION_SEND_BYTES (64u << 10)
/* When a session ends, this many of its leases and mappings are ended at once. The rest follows in
   slices of time, or as soon as a request depends on it. */
#define GB_SESSION_LEAVES_ITEMS 64
/* A session for which fewer bytes are held is not ended when its user is past held_bytes. */
#define GB_SESSION_SPARED_BYTES (64u << 10)
/* A session is served for a slice at a time, a busy one for half of it. The rest of its input waits
   until sessions that have sent less were served. */
#define GB_SESSION_SLICE_NS 50000u
/* The first receive of a turn; more at a time only if that took at most a fifth of a slice. */
#define GB_SESSION_PIECE_BYTES 4096
/* After a peer hangs up its remaining input is served at once, for at most GB_SESSION_DRAIN_NS, if
   it is no longer than GB_SESSION_LAST_BYTES or if the session has unsealed objects that others may
   wait for. The rest is served in its turn. */
#define GB_SESSION_LAST_BYTES 1024
#define GB_SESSION_DRAIN_NS 10000000u
/* A session that sends more lines than this at a time, or no whole line, is busy: it is served
   after the sessions that are not. */
#define GB_SESSION_MODEST_LINES 4
/* A user whose watches are this many events behind has no requests served. */
#define GB_TOLD_LATE 1024

/*
 * The life of a session. Every change goes through gb_session_become(), which logs it.
 *
 *   OPEN ─── the peer hangs up ───> HUNG_UP ── much input is left ──> DRAINING
 *    │                                 │                                 │
 *    └──── an error, or a limit ───────┴────── no input is left ─────────┴──> LEAVING ──> CLOSED
 *
 * The input of a session that has hung up is served before any request that another session sent
 * afterwards, so that no other session finds its work half done (promise 1 of
 * docs/PROTOCOL-SPACE.md). That must not take long. The rest of the input is served in state
 * DRAINING, when it is the session's turn. A draining session gives up its read leases. It keeps
 * its unsealed objects, which its input may seal. In state LEAVING a long list of leases and
 * mappings is ended in slices of time. The memory is freed in state CLOSED, when the list is empty.
 */
enum gb_session_state {
    GB_SESSION_OPEN,     /* its requests are served */
    GB_SESSION_HUNG_UP,  /* its input is served before others' next requests */
    GB_SESSION_DRAINING, /* its input is served in its turn */
    GB_SESSION_LEAVING,  /* it has ended: its socket is closed, or lingers (flight.h) */
    GB_SESSION_CLOSED,   /* the loop has closed its handle, too */
};

/* The state of its input. */
enum gb_session_input {
    GB_INPUT_WANTED,    /* it is received when there is some */
    GB_INPUT_KEPT,      /* received lines wait for its next turn */
    GB_INPUT_THROTTLED, /* nothing is served until the peer reads its replies */
    GB_INPUT_HELD,      /* nothing is served until a request of the session is done */
};

/* Its watches: methods/watch.c. */
struct gb_session_watches {
    struct gb_link watches, of_user; /* of_user: in the `told` or the `untold` of its user, or in
                                        neither: gb_session_stalls() */
    struct gb_news *told;            /* the last news that its watches were sent */
    uint64_t seq;                    /* of these; the number of an event */
    uint64_t count, unsynced;        /* watches */
};

struct gb_session {
    struct gb_server *server;
    struct gb_link of_server, dirty;
    struct gb_link ready;   /* in the server's `ready`, its user's `busy` or `draining` */
    struct gb_link leaving; /* while leases and mappings are left to be ended */
    struct gb_link untold;  /* while its output waits for the service manager */
    uint64_t unsent_notice; /* the notice that the manager must have got first */
    uint64_t id;
    uv_poll_t poll;
    int poll_events; /* that are polled for now */
    struct gb_conn conn;
    struct gb_user *user;
    pid_t pid;
    gid_t gid;
    gid_t *groups;   /* supplementary ones, asked for when first needed; owned */
    int group_count; /* -1: not asked yet */
    char *client;    /* the name it gave; owned; NULL if none */
    enum gb_session_state state;
    enum gb_session_input input;
    bool greeted; /* it has sent a request: `hello` comes first or not at all */
    bool busy;    /* it sent much, or used its slice up: served after sessions that did not */
    bool stopped_reading;   /* its peer will read nothing more */
    const char *end_reason; /* set by gb_session_doom(): why it ends with the turn; else NULL */

    struct gb_holder holder;
    struct gb_orphan_writer *orphan; /* takes what it writes when it ends; NULL: nothing live */
    struct gb_mapper mapper;
    struct gb_session_watches watching;
    struct gb_link waits;
    struct gb_link over;         /* waits that have ended, and leave their names in pieces */
    struct gb_provider provider; /* the prefixes that it provides */
    struct gb_link tasks;        /* requests that do not end in one turn (daemon/methods/task.h) */
    struct gb_task *task;        /* the one for which its input is held; NULL: none */
    struct gb_link produced;     /* objects that are withdrawn when it ends */
    struct gb_charge charge;
    struct gb_flight flight; /* descriptors that were sent to it */
    uint64_t wait_count;
    struct gb_timer half_line;
};

static inline bool gb_session_has_ended(const struct gb_session *session)
{
    return session->state >= GB_SESSION_LEAVING;
}

/* Whether its watches are sent nothing until its peer reads. */
static inline bool gb_session_stalls(const struct gb_session *session)
{
    return session->watching.told && !gb_list_linked(&session->watching.of_user);
}

/* Takes over the accepted socket; on failure it is closed. */
int gb_session_new(struct gb_server *server, int fd);
/* Receives once and serves the input; at the end of the stream, ends the session. */
void gb_session_serve(struct gb_session *session);
/* Changes its state, and logs that. */
void gb_session_become(struct gb_session *session, enum gb_session_state state);
/* Serves received lines, one at least. Stops at `until` (of uv_hrtime()), and while the peer does
   not read its replies; session->input then says what becomes of the rest. */
void gb_session_serve_lines(struct gb_session *session, uint64_t until);
/* False, and the session has ended, if descriptors come while too many of its user's wait to be
   closed. `scratch` has GB_SCRATCH_BYTES. */
bool gb_session_may_receive(struct gb_session *session, char *scratch);
/* Queues the session for its next turn. */
void gb_session_put_off(struct gb_session *session);
/* Charges its user with the bytes and descriptors that are held for the session; to be called when
   these have changed. Returns NULL, or the limit past which the session has taken its user: not if
   little is held for it, or no more than before. */
const char *gb_session_charge(struct gb_session *session);
/* The request for which its input was held is done. */
void gb_session_let_go(struct gb_session *session);
/* Queues a message with descriptors, which are taken over; it is sent at the end of the turn at the
   latest. A session with too much unread output is doomed, but not ended here. */
void gb_session_send(struct gb_session *session, const struct gb_writer *message, const int *fds,
                     unsigned count);
/* The same, and may take the message's memory over. */
void gb_session_answer(struct gb_session *session, struct gb_writer *message, const int *fds,
                       unsigned count);
/* Has descriptors that the session has sent closed (closer.h). */
void gb_session_drop_fds(struct gb_session *session, const int *fds, unsigned count);
/* Has the session end at the end of the turn, when nothing walks over it. `why` is static. */
void gb_session_doom(struct gb_session *session, const char *why);
/* Holds the session's output back until the service manager has got all that it was sent, or is
   late: an answer in it says that something outlives the daemon. */
void gb_session_delay_output(struct gb_session *session);
/* Lets the output of those go for whom the manager has got enough. */
void gb_sessions_release_output(struct gb_server *server);
/* Sends queued output, as far as the socket takes it, and at most `most` bytes. */
void gb_session_flush(struct gb_session *session, size_t most);

/* ---- rights ---- */

bool gb_session_is_admin(const struct gb_session *session); /* root, or the daemon's own uid */
bool gb_session_may_read(struct gb_session *session, const struct gb_object *object);
/* The same for an object known only by its owner and mode. */
bool gb_session_may_read_of(struct gb_session *session, uid_t uid, gid_t gid, unsigned mode);
bool gb_session_may_change(struct gb_session *session, const struct gb_object *object);
/* Whether it may provide names that begin with the prefix. */
bool gb_session_may_provide(const struct gb_session *session, const char *prefix);

#endif
