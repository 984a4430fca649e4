/*
 * A client's members, and how its users are counted.
 *
 * One mutex guards a client: its connection, the requests under way, its imports, watches and what
 * waits to be sent. It is held for moments only, never while polling or while a callback runs.
 *
 * Each file has a struct of its own here. State of a room above is a pointer, to a struct that only
 * that room knows.
 *
 * A client is counted: one reference is the program's, one belongs to each lease, so that objects
 * may be released after gpubuf_disconnect.
 */
#ifndef GB_LIB_CLIENT_H
#define GB_LIB_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/lib/base/process.h"
#include "client/lib/memory/cache.h"
#include "proto/wire/conn.h"
#include "proto/wire/rpc.h"

#define GB_ANSWER_TIMEOUT_MS 60000
#define GB_CACHE_BYTES (UINT64_C(1) << 30)
#define GB_INPUT_BYTES ((size_t)GB_LIMIT(line_bytes))

struct gb_request;
struct gb_delivery;
struct gb_watcher;
struct gb_provide;
struct gb_order;
struct gb_cached;
struct gb_client_lease;
struct gb_resumption;

enum gb_link_state {
    GB_LINK_UP,
    GB_LINK_DOWN,     /* broken: to be connected anew */
    GB_LINK_GREETING, /* connected anew: hello is not answered yet */
};

struct gpubuf_client;

/*
 * Functions of the rooms above, called when something happens below: one table for all clients
 * (session/connect.c). With the client's lock held, but for `run_due` and `end`.
 */
struct gb_client_hooks {
    /* The daemon tells a watch of an event. */
    void (*event)(struct gpubuf_client *client, struct gb_json params);
    /* The daemon wants a name that the client provides, or does not any more (`ended`). */
    void (*wanted)(struct gpubuf_client *client, struct gb_json params, bool ended);
    /* The daemon wants cached leases back, or a segment that cached leases may lie in. */
    void (*recall)(struct gpubuf_client *client, struct gb_json params);
    void (*retire)(struct gpubuf_client *client, uint64_t segment);
    /* The connection has broken: it is made anew, or lost for good. */
    void (*broken)(struct gpubuf_client *client, const struct gb_error *why);
    /* While the link is not up: does what is due and can be done without waiting. Returns for how
       long, in ms, there is nothing more to do, but at most `timeout_ms` (-1: never). For the
       leader, or while there is none. */
    int (*mend)(struct gpubuf_client *client, int timeout_ms);
    /* The connection is lost for good. */
    void (*lost)(struct gpubuf_client *client);
    /* Looks at the events of GPUs that the client waits for. Returns whether there are more. */
    bool (*poll)(struct gpubuf_client *client);
    /* The flusher's turn, without the lock. Returns whether the client is still to be looked after;
       clears *down if there is anything else to do but to connect. */
    bool (*run_due)(struct gpubuf_client *client, bool *down);
    /* The client is being freed, and nobody else knows it any more. */
    void (*end)(struct gpubuf_client *client);
};

/* Polling the socket: wire/wait.c. */
struct gb_polling {
    bool leader;      /* a thread polls for all threads */
    unsigned pollers; /* threads that poll the socket without the lock */
    unsigned waiters; /* threads that wait on `changed` */
    unsigned misses;  /* how often in a row polling brought no answer */
    unsigned pause;   /* how many times not to poll before polling again */
};

/* How the connection ends: wire/receive.c. An error whose code is 0 is none. */
struct gb_connection_end {
    bool write_failed;        /* the daemon does not read any more; its last output is read first */
    bool hung_up;             /* the daemon has; what it still wrote may not have been received */
    struct gb_error lost;     /* the connection is, for that reason */
    struct gb_error farewell; /* why the daemon said that it shuts down */
    struct gb_error reason;   /* why the connection is to break */
};

/* The program's event loop: wire/loop.c. */
struct gb_program_loop {
    int set;     /* an epoll set with the socket; or -1 */
    int waker;   /* in it: an eventfd */
    bool woken;  /* it is to be read */
    bool output; /* the set looks for room to send as well */
};

/* Requests that are not answered: wire/request.c. */
struct gb_requests {
    uint64_t last_id;
    struct gb_request **buckets;
    size_t bucket_count, count;
    int timeout_ms; /* for an answer */
    bool gather;    /* some wait to be sent together: gather.h */
};

/* Callbacks that are due: wire/callback.c. */
struct gb_deliveries {
    struct gb_delivery *first, **end;
    bool under_way; /* one thread runs callbacks */
    pthread_t by;   /* valid while they are under way */
    uint64_t watch; /* or provided prefix, whose callback runs; 0: none */
};

/* Leases that have ended and that are not reported to the daemon yet: wire/release.c. The capacity
   always suffices for all that live. The top bits say what is to be told. */
struct gb_releases {
    uint64_t *ids;
    size_t count, capacity;
    size_t leases;       /* that live */
    uint64_t last_lease; /* the last number of one */
    int64_t last_us;
};

/* The flusher's part: wire/flusher.c. */
struct gb_flush {
    bool engaged; /* it looks after the client */
    bool overdue; /* what waits to be sent has waited for a tick already */
    unsigned quiet_ticks;
    bool brief; /* it does only what is to be done now */
    struct gpubuf_client *next, *watched_next;
    bool is_watched;   /* it looks out for the end of the client's connection */
    int fd;            /* the connection's socket; guarded by the flusher's lock */
    bool link_watched; /* the same of the present connection */
    bool listens;      /* it looks out for messages, too */
};

/* The program's function for progress, as in the options: wire/progress.c. `report` NULL: none. */
struct gb_progress_call {
    int (*report)(void *arg, uint64_t bytes);
    void *arg;
};

/* The daemon: which one the program asks for, and what it says of itself. */
struct gb_daemon {
    bool own_daemon, while_listening; /* as in the options */
    int resume_ms;                    /* likewise; GPUBUF_NO_RESUME: never */
    char instance[GB_INSTANCE_BYTES];
    uint64_t names_max, line_bytes_max, request_bytes_max;
};

struct gpubuf_client {
    const struct gb_client_hooks *hooks;
    _Atomic size_t references;
    uint64_t serial;                       /* never used twice in a process */
    unsigned generation;                   /* of the process: differs in a child of fork */
    struct gpubuf_client *next, *previous; /* of all clients, for fork */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gb_conn conn;
    _Atomic bool disconnected; /* the program has */
    _Atomic bool ended;        /* disconnected or lost */
    struct gb_polling polling;
    struct gb_connection_end end;

    enum gb_link_state link;
    char *path, *name;                /* of the socket, of the client; owned */
    struct gb_resumption *resumption; /* NULL: connections are not made anew; owned */

    struct gb_program_loop loop;
    struct gb_daemon daemon;
    _Atomic uint64_t session, connections;
    bool lingers; /* it has asked for leases that outlive its connections */
    struct gb_progress_call progress;
    struct gb_requests requests;
    struct gb_deliveries deliveries;

    struct gb_watcher *watches;
    struct gb_provide *provides;
    uint64_t last_watch; /* the last number of a watch or a provided prefix */
    struct gb_client_lease *leases;
    struct gb_imports imports;
    struct gb_order *order;   /* see objects/order.h; NULL: no event was ever waited for */
    struct gb_cached *cached; /* see objects/cached.h; NULL: no lease is cached */
    _Atomic bool caches;      /* some leases are cached, or in use without the daemon's knowing */
    struct gb_releases releases;
    struct gb_flush flush;

    struct gb_writer writer; /* of the request at hand */
    struct gb_writer notice; /* of notifications */
    struct gb_pool pool;     /* of the message at hand */
    char *input;             /* GB_INPUT_BYTES to receive into */
    size_t input_part;       /* bytes at its front of a line whose end has not come */
};

/* Allocates a client around a connected, non-blocking socket that has not been greeted. NULL: out
   of memory; the socket stays the caller's. */
struct gpubuf_client *gb_client_new(int fd, const struct gb_client_hooks *hooks);

void gb_client_retain(struct gpubuf_client *client);
void gb_client_release(struct gpubuf_client *client); /* without the lock */

/* Whether it belongs to the parent of this process. Nothing of it may be touched then. */
static inline bool gb_is_forked(const struct gpubuf_client *client)
{
    return client->generation != gb_generation();
}

/* Settles and drops what GPUs have done by now. Returns whether there is more to wait for. */
static inline bool gb_poll_gpus(struct gpubuf_client *client)
{
    return client->order && client->hooks->poll(client);
}

/* Wakes the threads that wait on `changed`. */
static inline void gb_client_changed(struct gpubuf_client *client)
{
    if (client->polling.waiters)
        pthread_cond_broadcast(&client->changed);
}

#endif
