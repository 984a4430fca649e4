/*
 * A client's members, and how its users are counted.
 *
 * One mutex guards a client: its connection, the requests under way, its imports, watches and what
 * waits to be sent. It is held for moments only, never while polling or while a callback runs.
 *
 * The members are grouped by the file that looks after them. State of a room above is a pointer
 * here, to a struct that only that room knows.
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
#include "proto/conn.h"
#include "proto/rpc.h"

#define GB_ANSWER_TIMEOUT_MS 60000
#define GB_CACHE_BYTES (UINT64_C(1) << 30)
#define GB_INPUT_BYTES ((size_t)GB_LIMIT(line_bytes))

struct gb_request;
struct gb_delivery;
struct gb_watcher;
struct gb_provide;
struct gb_order;
struct gb_keeper;
struct gb_holding;
struct gb_resumption;

enum gb_link_state {
    GB_LINK_UP,
    GB_LINK_DOWN,     /* broken: to be connected anew */
    GB_LINK_GREETING, /* connected anew: hello is not answered yet */
};

struct gpubuf_client;

/*
 * Functions of the rooms above, called when something happens below: one table for all clients
 * (session/connect.c). With the client's lock held, but for `tend` and `end`.
 */
struct gb_client_hooks {
    /* The daemon tells a watch of an event. */
    void (*event)(struct gpubuf_client *client, struct gb_json params);
    /* The daemon wants a name that the client provides, or does not any more (`ended`). */
    void (*wanted)(struct gpubuf_client *client, struct gb_json params, bool ended);
    /* The daemon wants kept leases back, or a segment that kept leases may lie in. */
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
    bool (*tend)(struct gpubuf_client *client, bool *down);
    /* The client is being freed, and nobody else knows it any more. */
    void (*end)(struct gpubuf_client *client);
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
    bool write_failed;         /* the daemon reads no more; what it still wrote is read first */
    bool leader;               /* a thread polls for all threads */
    bool hung_up;              /* the daemon has; what it still wrote may not have been received */
    unsigned pollers;          /* threads that poll the socket without the lock */
    unsigned waiters;          /* threads that wait on `changed` */
    unsigned look_misses;      /* how often in a row polling for an answer was in vain */
    unsigned look_pause;       /* how many times not to poll before polling again */
    _Atomic bool ended;        /* disconnected or lost */
    struct gb_error lost;      /* code 0: the connection is not lost */
    struct gb_error farewell;  /* why the daemon said that it shuts down; code 0: it did not */
    struct gb_error break_reason; /* why the connection is to break; code 0: it need not */
    bool gathers;                 /* requests wait to be sent together: see gather.h */

    enum gb_link_state link;
    int resume_ms;                    /* as in the options; GPUBUF_NO_RESUME: never */
    char *path, *name;                /* of the socket, of the client; owned */
    struct gb_resumption *resumption; /* NULL: connections are not made anew; owned */

    int loop;         /* an epoll set with the socket, for the program's event loop; or -1 */
    int loop_waker;   /* in it: an eventfd */
    bool loop_woken;  /* it is to be read */
    bool loop_output; /* the set looks for room to send as well */

    char instance[GB_INSTANCE_BYTES];
    _Atomic uint64_t session, connections;
    uint64_t names_max, line_bytes_max, request_bytes_max;
    int answer_timeout_ms;

    uint64_t last_id;
    struct gb_request **buckets;
    size_t bucket_count, request_count;

    struct gb_delivery *deliveries, **deliveries_end;
    bool delivering;           /* one thread runs callbacks */
    pthread_t delivering_by;   /* valid while delivering */
    uint64_t delivering_watch; /* or provided prefix, whose callback runs; 0: none */

    struct gb_watcher *watches;
    struct gb_provide *provides;
    uint64_t last_watch; /* the last number of a watch or a provided prefix */
    struct gb_holding *leases;
    struct gb_imports imports;
    struct gb_order *order;   /* see objects/order.h; NULL: no event was ever waited for */
    struct gb_keeper *keeper; /* see objects/keep.h; NULL: no lease is cached */
    _Atomic bool keeps;       /* some leases are kept */

    /* Leases that have ended and that the daemon is still to be told of; the capacity always
       suffices for all that live. The top bits say what is to be told: see wire/release.c. */
    uint64_t *released;
    size_t released_count, released_capacity, lease_count;
    int64_t last_release_us;
    bool engaged; /* the flusher looks after it */
    bool overdue; /* what waits to be sent has waited for a tick already */
    unsigned quiet_ticks;
    struct gpubuf_client *flusher_next, *kept_next;
    bool kept;      /* the flusher looks out for the end of its connection */
    int kept_fd;    /* the connection's socket, for the flusher; guarded by its lock */
    bool link_kept; /* the same of the present connection */
    bool listens;   /* the flusher looks out for messages, too */

    struct gb_writer writer; /* of the request at hand */
    struct gb_writer notice; /* of notifications */
    struct gb_pool pool;     /* of the message at hand */
    char *input;             /* GB_INPUT_BYTES to receive into */
    size_t input_kept;       /* bytes at its front of a line whose end has not come */
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
    if (client->waiters)
        pthread_cond_broadcast(&client->changed);
}

#endif
