/*
 * The state of fetches (fetch.h), for the two parts of fetching: sources.c, which finds and opens
 * the places that an object comes from, and above it fetch.c, which has all other steps and the
 * turns of users. On the loop's thread.
 */
#ifndef GB_PEER_FETCHING_H
#define GB_PEER_FETCHING_H

#include "client/peer/base/figures.h"
#include "client/peer/base/parts.h"
#include "client/peer/base/seldom.h"
#include "client/peer/content/copies.h"
#include "client/peer/content/digest.h"
#include "client/peer/content/granted.h"
#include "client/peer/fetch/remote.h"
#include "client/peer/fetch/transfer.h"
#include "proto/base/list.h"

enum { GB_PEER_FAILED_MOST = 16 }; /* machines that one fetch leaves; then it gives up */

struct gb_peer_fetches;

/* The step that a fetch is at. From GB_PEER_FETCH_OPENING on it is under way. */
enum gb_peer_fetch_step {
    GB_PEER_FETCH_ABSENT, /* no machine has the name; the daemon's request stays open */
    GB_PEER_FETCH_QUEUED, /* others have their turn before */
    GB_PEER_FETCH_OPENING,
    GB_PEER_FETCH_CREATING,
    GB_PEER_FETCH_MOVING,
    GB_PEER_FETCH_SEALING,
    GB_PEER_FETCH_ENDING, /* when nothing is under way any more */
};

/* A machine that is no longer asked. */
struct gb_peer_fetch_left {
    char node[GB_PEER_NODE_BYTES];
    bool refused; /* the connection: it may be asked again later */
};

/* A user for whom something was fetched, until the peer ends. */
struct gb_peer_fetch_user {
    struct gb_link of_all;
    uint64_t uid;
    unsigned active; /* fetches under way */
};

struct gb_peer_fetch {
    struct gb_peer_transfer transfer; /* must be first: on_moved casts it to the fetch */
    struct gb_link of_all;
    struct gb_peer_fetches *fetches;
    struct gb_peer_fetch_user *owner;
    uint64_t request; /* 0: nobody waits */
    enum gb_peer_fetch_step step;
    uint64_t wake;    /* when the directory is asked again, by the loop's clock; 0: no pause */
    unsigned busy;    /* times in a row that all sources were busy */
    uint64_t until;   /* for connections that are refused, by the loop's clock; 0: none was */
    unsigned pending; /* calls under way, chunks not counted: the fetch stays until they are
                         answered */
    unsigned opens;   /* of these, opens at places */
    unsigned rounds;
    struct gb_peer_fetch_left failed[GB_PEER_FAILED_MOST];
    unsigned failed_count;
    uint64_t revision;
    uint64_t means; /* the revision that the name means by now; 0: none */
    char origin[GB_PEER_NODE_BYTES];
    struct gb_peer_word word; /* the origin's, of that revision */
    struct gb_peer_place
        *places; /* to be opened when the word is here; NULL: it is not asked for */
    size_t place_count;
    struct gb_peer_digest *digest; /* of the content; NULL: it was not begun */
    bool mixed;                    /* something came from another machine than the origin */
    struct gb_pool pool;           /* of what was granted */
    char *text;                    /* the first answer */
    struct gb_peer_granted granted;
    struct gb_peer_word first; /* `described`: of the first answer */
    struct gpubuf_object *object;
    struct gb_peer_content content;
    struct gb_error error; /* the last */
    char name[];
};

/* The steps of a fetch, for sources.c, which comes below them. */
struct gb_peer_fetch_steps {
    /* Declines the request, if anybody waits, and ends the fetch. */
    void (*give_up)(struct gb_peer_fetch *fetch, const struct gb_error *error);
    /* A call of the fetch has been answered. False: it is ending, and may have been freed. */
    bool (*answered)(struct gb_peer_fetch *fetch);
    void (*create)(struct gb_peer_fetch *fetch);  /* makes the object that was granted */
    void (*advance)(struct gb_peer_fetch *fetch); /* takes the next step, after any event */
    void (*moved)(struct gb_peer_transfer *transfer);
};

struct gb_peer_fetches {
    const struct gb_peer_parts *parts;
    const struct gb_peer_fetch_steps *steps;
    struct gb_link all;     /* struct gb_peer_fetch, the oldest first */
    unsigned active, count; /* under way; those and the queued ones */
    bool starting;          /* or stopped: no other is begun */
    uv_timer_t pause;
    struct gb_link owners; /* struct gb_peer_fetch_user */
};

#endif
