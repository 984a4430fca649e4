/*
 * What a client is made of, and the calls between the library's files.
 *
 * One mutex guards a client: its connection, the requests under way, its imports, watches and what
 * waits to be sent. It is held for moments only, never while polling or while a callback runs.
 *
 * Whoever waits first leads: it polls the socket and handles what comes for everybody; the others
 * wait on `changed`. A program with an event loop does the same through gpubuf_dispatch. Replies
 * are decoded under the lock by the request's type; callbacks are queued and run without it, in
 * order, by one thread at a time.
 *
 * A client is counted: one reference is the program's, one belongs to each lease, so that objects
 * may be released after gpubuf_disconnect.
 */
#ifndef GB_LIB_INTERNAL_H
#define GB_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "flusher.h"
#include "proto/conn.h"
#include "proto/rpc.h"

#define GB_ANSWER_TIMEOUT_MS 60000
#define GB_INPUT_BYTES ((size_t)GB_LIMIT(line_bytes))

struct gb_request;

/* A reply as a request's type gets it: a result or a refusal, and the descriptors that came along.
   Descriptors that the type does not set to -1 are closed afterwards. */
struct gb_reply {
    struct gb_json result;
    const struct gb_error *refused; /* NULL: `result` is there */
    struct gb_json error;           /* the raw error, if refused */
    int *fds;
    unsigned fd_count;
};

struct gb_request_type {
    /*
     * Reads a reply, with the lock held. 0, a positive outcome of the type's own, or a failure with
     * *error filled in; GPUBUF_E_PROTOCOL ends the connection, and so does GPUBUF_E_CLOSED. If it
     * sets request->again, the request is under way again. NULL: only success or failure matters.
     */
    int (*reply)(struct gb_request *request, const struct gb_reply *reply, struct gb_error *error);
    /* It has ended, however, with the lock held; before anybody is told. May be NULL. */
    void (*settle)(struct gb_request *request);
    /* Runs the callback, without the lock; `status` is what it is to be told. */
    void (*deliver)(struct gb_request *request, int status);
    /* Gives back what nobody will fetch, with the lock held. May be NULL. */
    void (*discard)(struct gb_request *request);
    /* Frees it. Without the lock if its outcome was delivered or waited for, else with it. */
    void (*free)(struct gb_request *request);
};

/* What waits for its callback: a request that has ended, or an event of a watch. */
struct gb_delivery {
    struct gb_delivery *next;
    bool event;
};

struct gb_request {
    struct gb_delivery delivery;
    struct gb_request *chain; /* in its bucket */
    const struct gb_request_type *type;
    struct gpubuf_client *client;
    uint64_t id;
    int status;    /* once `ended` */
    bool waited;   /* by a blocking call, which frees it; else there is a callback */
    bool canceled; /* nobody is interested any more: discard what comes */
    bool ended;    /* the outcome is there */
    bool again;    /* sent again by its own reply */
    bool holding;  /* imports, until it has ended */
    bool held;     /* being canceled: whoever cancels frees it */
    struct gb_error error;
};

struct gb_watch;
struct gb_order;

struct gpubuf_client {
    _Atomic size_t references;
    uint64_t serial;                       /* never used twice in a process */
    unsigned generation;                   /* of the process: differs in a child of fork */
    struct gpubuf_client *next, *previous; /* of all clients, for fork */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gb_conn conn;
    _Atomic bool disconnected; /* by the program */
    bool write_failed;         /* the peer reads no more; what it still wrote is read first */
    bool leader;               /* somebody polls for everybody */
    unsigned pollers;          /* threads that poll the socket without the lock */
    unsigned waiters;          /* threads that wait on `changed` */
    unsigned look_misses;      /* how often in a row looking for an answer was in vain */
    unsigned look_pause;       /* how often not to look before looking again */
    _Atomic bool ended;        /* disconnected or lost */
    struct gb_error lost;      /* code 0: it is not */
    struct gb_error farewell;  /* why the daemon said that it shuts down; code 0: it did not */
    bool gathers;              /* requests wait for one another: see gather.h */

    char instance[GB_INSTANCE_BYTES];
    uint64_t session;
    uint64_t names_max, line_bytes_max;
    int answer_timeout_ms;

    uint64_t last_id;
    struct gb_request **buckets;
    size_t bucket_count, request_count;

    struct gb_delivery *deliveries, **deliveries_end;
    bool delivering;         /* one thread runs callbacks */
    pthread_t delivering_by; /* valid while delivering */
    uint64_t delivering_watch;

    struct gb_watch *watches;
    struct gb_imports imports;
    struct gb_order *order; /* see gpu_order.h; NULL: nothing was ever to be waited for */

    /* Leases that have ended and that the daemon is still to be told of; the capacity always
       suffices for all that live. The top bit says: abort. */
    uint64_t *released;
    size_t released_count, released_capacity, lease_count;
    int64_t last_release_us;
    bool engaged; /* the flusher looks after it */
    bool overdue; /* what waits to be sent has waited for a tick already */
    unsigned quiet_ticks;
    struct gpubuf_client *flusher_next;

    struct gb_writer writer; /* of the request at hand */
    struct gb_writer notice; /* of notifications */
    struct gb_pool pool;     /* of the message at hand */
    char *input;             /* GB_INPUT_BYTES to receive into */
    size_t input_kept;       /* bytes at its front of a line whose end has not come */
};

/* ---- error.c: the sentence of each thread's last failure ---- */

/* Notes it for the calling thread (client NULL: of gpubuf_connect) and returns error->code. */
int gb_report(const struct gpubuf_client *client, const struct gb_error *error);
int gb_report_text(const struct gpubuf_client *client, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gb_report_memory(const struct gpubuf_client *client);

/* ---- fork.c ---- */

/* Adds a client to those whose sockets a child of fork closes. */
int gb_fork_watch(struct gpubuf_client *client);
/* Removes it and closes its connection, so that no fork sees it half closed. */
void gb_fork_unwatch(struct gpubuf_client *client);
bool gb_is_forked(const struct gpubuf_client *client);
/* The process's: another in a child of fork. Never 0. */
unsigned gb_generation(void);

/* ---- client.c ---- */

/* Locks the client for a call. GPUBUF_E_FORKED, GPUBUF_E_INVALID (NULL), or why the connection is
   lost; then it is reported and not locked. A blocking call is refused inside a callback. */
int gb_enter(struct gpubuf_client *client);
int gb_enter_blocking(struct gpubuf_client *client);
void gb_leave(struct gpubuf_client *client);

void gb_client_retain(struct gpubuf_client *client);
void gb_client_release(struct gpubuf_client *client); /* without the lock */

/* Allocates a client around a connected, non-blocking socket that has not been greeted. */
struct gpubuf_client *gb_client_new(int fd);

/* ---- request.c: requests under way ---- */

/* Begins a request's message and returns the writer, which stands where its params go. The request
   must be sent or abandoned before the lock is let go. */
struct gb_writer *gb_request_begin(struct gpubuf_client *client, struct gb_request *request,
                                   const char *method, unsigned fds);
enum gb_release_order { GB_RELEASES_FIRST, GB_RELEASES_LAST };

/*
 * Ends its message and sends it with `fds`, which are taken over, together with what waits to be
 * told of leases and segments. On failure the request is not under way and is the caller's.
 * GPUBUF_E_NO_MEMORY, GPUBUF_E_LIMIT (the message is too long).
 */
int gb_request_send(struct gpubuf_client *client, struct gb_request *request, const int *fds,
                    unsigned fd_count, enum gb_release_order order, struct gb_error *error);

/* For a request that is sent again: no import is dropped until it has ended. */
void gb_request_hold_imports(struct gb_request *request);

struct gb_request *gb_request_find(const struct gpubuf_client *client, uint64_t id);

/* Ends a request: keeps the outcome for who waits, or queues its callback, or discards it. */
void gb_request_end(struct gb_request *request, int status, const struct gb_error *error);

/* Ends all of them; for gb_client_lose. */
void gb_request_end_all(struct gpubuf_client *client, const struct gb_error *error);

/* Takes a request off the table, and puts one back that was taken off. */
void gb_request_remove(struct gb_request *request);
void gb_request_restore(struct gb_request *request);

/*
 * Waits until a `waited` request has ended, and takes it off the table. The lock is held before and
 * after, and let go meanwhile. Returns its status, reported if a failure. After a timeout
 * (`timeout_ms` -1: never) *request is NULL: it lives on until its reply comes.
 */
int gb_request_wait(struct gpubuf_client *client, struct gb_request **request, int64_t timeout_ms);

/* What to wait for an answer when the daemon itself may take `wait_ms`. */
int64_t gb_answer_timeout(const struct gpubuf_client *client, int64_t wait_ms);

/* ---- dispatch.c: the connection ---- */

/* Marks the connection lost and ends everything. */
void gb_client_lose(struct gpubuf_client *client, const struct gb_error *why);

/* Sends what the socket takes. */
void gb_flush(struct gpubuf_client *client);
/* Queues notifications of leases that ended and of segments unmapped. */
void gb_queue_releases(struct gpubuf_client *client);
/* Only of segments. False if memory is out: then no request that may be granted a lease must be sent,
   since the daemon would still count on what was unmapped. */
bool gb_queue_unmaps(struct gpubuf_client *client);
/*
 * Sees to it that the daemon is told of what was released: at once, or, where releases follow on one
 * another within a millisecond, with the next message or by the flusher. Inside a callback it goes
 * out when the callbacks have run.
 */
void gb_send_releases(struct gpubuf_client *client);
/* Room for so many leases more among those that have ended. */
int gb_reserve_releases(struct gpubuf_client *client, size_t more);
/* Notes that a lease has ended; there must be room. */
void gb_push_release(struct gpubuf_client *client, uint64_t lease, bool abort);

/* Receives once (or, with `all`, what is there by now) and handles it. Returns how many messages. */
int gb_receive(struct gpubuf_client *client, bool all);

/* Polls and handles what comes, for at most `timeout_ms` (-1: for ever). Lets the lock go. */
void gb_lead(struct gpubuf_client *client, int timeout_ms);

/* Runs the callbacks that are due, unless another thread is at it. Lets the lock go. */
void gb_deliver(struct gpubuf_client *client);
void gb_queue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery);
/* Whether the calling thread is inside a callback of this client. */
bool gb_in_callback(const struct gpubuf_client *client);

/* Monotonic time. */
int64_t gb_now_us(void);
int64_t gb_now_ms(void);
/* What is left until `deadline` (-1: never), for poll. */
int gb_left_ms(int64_t deadline);

/* ---- watch.c ---- */

void gb_watch_event(struct gpubuf_client *client, struct gb_json params);
void gb_watch_deliver(struct gpubuf_client *client, struct gb_delivery *delivery);
void gb_watch_end_all(struct gpubuf_client *client);

/* ---- names.c ---- */

/* Reads an `object` without its layout. *info is written on success only. */
int gb_info_read(struct gb_json object, struct gb_pool *pool, struct gpubuf_info *info,
                 struct gb_error *error);
int gb_check_prefix(const struct gpubuf_client *client, const char *prefix);

/* ---- call.c ---- */

/* Writes the params of a call. */
typedef void (*gb_write_params)(struct gb_writer *writer, const void *arg);

/* A blocking call; *result (may be NULL) is the text of its result, for free(). Reports failures.
 */
int gb_call(struct gpubuf_client *client, const char *method, gb_write_params write,
            const void *arg, int64_t timeout_ms, char **result);
/* With descriptors, which stay the caller's; at most as many as go with one message. */
int gb_call_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                     const void *arg, const int *fds, unsigned fd_count, int64_t timeout_ms,
                     char **result);
/* As that, without waiting; see gpubuf_call_async for the callback. `arg` is not kept. */
int gb_call_async_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                           const void *arg, const int *fds, unsigned fd_count,
                           gpubuf_call_cb callback, void *callback_arg, uint64_t *request);

/* Writes checked JSON text with the line breaks between its tokens turned into spaces. */
void gb_write_json(struct gb_writer *writer, struct gb_json value);

#endif
