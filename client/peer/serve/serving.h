/*
 * The ground of a session (session.h): its state, which reading.c has part in, the requests under
 * way, and answers. On the loop's thread.
 */
#ifndef GB_PEER_SERVING_H
#define GB_PEER_SERVING_H

#include "client/peer/base/figures.h"
#include "client/peer/base/parts.h"
#include "client/peer/content/described.h"
#include "client/peer/content/lease.h"
#include "client/peer/content/words.h"
#include "client/peer/link/lane.h"
#include "client/peer/link/link.h"

struct gb_peer_session;

struct gb_peer_session_events {
    /* Whether the machine of that name may have one more connection. */
    bool (*open)(struct gb_peer_session *session, const char *node, void *user);
    void (*closed)(struct gb_peer_session *session,
                   void *user); /* the session is freed after that */
    /* Whether there is a place for a session that has none. It then keeps the place to its end. */
    bool (*place)(void *user);
    /* That lease, of another connection of the same machine; NULL: there is none. */
    struct gb_peer_lease *(*lease)(struct gb_peer_session *session, uint64_t id, void *user);
    /* How many machines have leases on that version of an object. */
    unsigned (*readers)(uint64_t version, void *user);
};

struct gb_peer_session {
    const struct gb_peer_parts *parts;
    struct gb_peer_session_events events;
    void *user;
    struct gb_peer_link *link; /* NULL: the session has ended, and waits for the daemon's answers */
    struct gb_peer_lane *lane; /* beside the link; NULL: none */
    char node[GB_PEER_NODE_BYTES];       /* "": not known yet */
    struct gb_link leases;               /* struct gb_peer_lease */
    unsigned lease_count, busy, passing; /* `busy`: requests under way; `passing`: of these, chunks
                                            on the lane */
    uint64_t answered; /* when the last request was, or the first came after none, by the loop's
                          clock */
    bool unknown;      /* the machine is not known, maybe not yet: its requests are not read */
    bool side;         /* reads by a lease of another connection */
    bool placed;       /* has one of the places of machines that are served */
    uint64_t came;     /* when the handshake was done */
    unsigned uses;     /* requests under way, the link */
};

/* Of a request, as far as it has them. */
struct gb_peer_session_params {
    struct gb_string method, name, tag, address;
    uint64_t version, lease, chunk;
};

/* The session is freed with the last of its `uses`. */
void gb_peer_session_drop(struct gb_peer_session *session);
/* A request is under way; finish: no more. */
void gb_peer_session_begin(struct gb_peer_session *session);
void gb_peer_session_finish(struct gb_peer_session *session);
void gb_peer_session_close_lane(struct gb_peer_session *session);
/* Every request is answered: without an answer the other machine would wait for minutes. */
void gb_peer_session_refuse_memory(struct gb_peer_session *session, uint64_t id);
/* Answers with the writer's text, and ends it. */
void gb_peer_session_send(struct gb_peer_session *session, uint64_t request,
                          struct gb_writer *writer);

#endif
