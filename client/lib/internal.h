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
 * A connection that breaks is, unless the program does not want that, made anew (resume.c): the
 * socket takes the place of the old one, under its descriptor, leases are asked for again, and requests
 * that may be are sent again. Meanwhile requests are only noted in the table.
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
    /* Sends it anew after the connection broke, as it was first sent, while it is off the table. NULL:
       it is only ever sent once. */
    int (*resend)(struct gb_request *request, struct gb_error *error);
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
    uint64_t end;  /* of its message, in bytes sent by the connection; UINT64_MAX: not sent yet */
    int status;    /* once `ended` */
    bool once;     /* the daemon must not get it twice */
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
struct gb_lease;
struct gb_resumption;

enum gb_link_state {
    GB_LINK_UP,
    GB_LINK_DOWN,     /* broken: to be connected anew */
    GB_LINK_GREETING, /* connected anew: hello is not answered yet */
};

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
    bool hung_up;              /* the daemon has; what it still wrote may not have been received */
    unsigned pollers;          /* threads that poll the socket without the lock */
    unsigned waiters;          /* threads that wait on `changed` */
    unsigned look_misses;      /* how often in a row looking for an answer was in vain */
    unsigned look_pause;       /* how often not to look before looking again */
    _Atomic bool ended;        /* disconnected or lost */
    struct gb_error lost;      /* code 0: it is not */
    struct gb_error farewell;  /* why the daemon said that it shuts down; code 0: it did not */
    struct gb_error doomed;    /* why the connection is to break; code 0: it is not */
    bool gathers;              /* requests wait for one another: see gather.h */

    enum gb_link_state link;
    int resume_ms;                    /* as in the options; GPUBUF_NO_RESUME: never */
    char *path, *name;                /* of the socket, of the client; owned */
    struct gb_resumption *resumption; /* NULL: connections are not made anew; owned */

    int loop;         /* an epoll set with the socket, for the program's event loop; or -1 */
    int loop_waker;   /* in it: an eventfd */
    bool loop_woken;  /* it is to be read */
    bool loop_output; /* the set looks for room to send as well */

    char instance[GB_INSTANCE_BYTES];
    _Atomic uint64_t session;
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
    uint64_t last_watch;
    struct gb_lease *leases;
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
    struct gpubuf_client *flusher_next, *kept_next;
    bool kept;      /* by the flusher, who looks out for the end of its connection */
    bool link_kept; /* that of the connection there is now */

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
/* Connects a new socket and puts it in the place of the client's, under the same descriptor. 0 or
   an errno; EAGAIN: the daemon's queue is full. */
int gb_fork_reconnect(struct gpubuf_client *client);
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

/* Reads the answer to hello, and takes over what it says. *resumed (may be NULL) is its member. */
int gb_read_welcome(struct gpubuf_client *client, struct gb_json result, struct gb_json *resumed,
                    struct gb_error *error);
/* Begins the params of hello: {"protocol":…,"client":…, without the end. */
void gb_write_hello(struct gb_writer *writer, const char *name);

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
/* The connection broke: ends those that cannot be sent anew, the rest is to be sent. */
void gb_request_break_all(struct gpubuf_client *client);
/* Sends all that are to be sent, in order. GPUBUF_E_NO_MEMORY. */
int gb_request_resume_all(struct gpubuf_client *client, struct gb_error *error);

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

/* ---- resume.c: a connection that broke is made anew ---- */

/* Makes room for what a connection that breaks needs: when it does, memory may be short. */
int gb_resume_prepare(struct gpubuf_client *client);
/* The connection has broken: it is made anew, or lost for good. */
void gb_client_break(struct gpubuf_client *client, const struct gb_error *why);
/* It is to break once what was received has been handled, of which the caller is in the midst. */
void gb_client_doom(struct gpubuf_client *client, const struct gb_error *why);
/* Where the link is not up: does what is due and can be done without waiting. For the leader, or
   while there is none. */
void gb_resume_step(struct gpubuf_client *client);
/* When there is something to do again, for poll, but at most `timeout_ms` (-1: never). */
int gb_resume_pause(const struct gpubuf_client *client, int timeout_ms);
/* The lease ends. */
void gb_resume_forget(struct gb_lease *lease);
/* With the client, or when it is lost. */
void gb_resume_end(struct gpubuf_client *client);

/* ---- loop.c: the descriptor for the program's event loop ---- */

/* The connection's socket is another, or (-1) none for now. */
void gb_loop_watch(struct gpubuf_client *client, int fd);
/* Something is there for the program to dispatch that did not come through its loop. */
void gb_loop_wake(struct gpubuf_client *client);
/* Takes note of being woken, in dispatch. */
void gb_loop_clear(struct gpubuf_client *client);
/* Closes it; in a child of fork as well. */
void gb_loop_end(struct gpubuf_client *client);

/* ---- dispatch.c: the connection ---- */

/* Marks the connection lost and ends everything. While it is being made anew memory that is short is
   no reason: there is another attempt. */
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
/* The connection has broken: events of before mean nothing any more; and it is there again. */
void gb_watch_break(struct gpubuf_client *client);
int gb_watch_resume(struct gpubuf_client *client, struct gb_error *error);

/* ---- names.c ---- */

/* Reads an `object` without its layout. *info is written on success only. */
int gb_info_read(struct gb_json object, struct gb_pool *pool, struct gpubuf_info *info,
                 struct gb_error *error);
int gb_check_prefix(const struct gpubuf_client *client, const char *prefix);

/* ---- call.c ---- */

/* Writes the params of a call. */
typedef void (*gb_write_params)(struct gb_writer *writer, const void *arg);

/* A blocking call; *result (may be NULL) is the text of its result, for free(). Reports failures.
   `write` and `arg` serve again where it is sent anew, which only methods are that change nothing
   or may be done twice, unless the daemon cannot have had it. */
int gb_call(struct gpubuf_client *client, const char *method, gb_write_params write,
            const void *arg, int64_t timeout_ms, char **result);
/* A blocking call whose result `read` reads into `out` from the message itself, with the lock held
   and the message's pool: 0, or a failure with *error filled in, where GPUBUF_E_INVALID says that
   the daemon's answer is malformed. Reports failures; `out` may then be partly written. */
typedef int (*gb_read_result)(struct gb_json result, struct gb_pool *pool, void *out,
                              struct gb_error *error);
int gb_call_read(struct gpubuf_client *client, const char *method, gb_write_params write,
                 const void *arg, int64_t timeout_ms, gb_read_result read, void *out);
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
