/*
 * The Node addon. JavaScript sees numbers only: a client and an object are indices into tables of
 * this environment (the main thread's or a worker's), which lib/ keeps to itself.
 *
 * A call begins a request, and returns at once. The outcome is a *completion*. Completions wait
 * here until the library's callbacks have run; then one call hands all of them to JavaScript.
 * libuv's own loop drives the library: by one uv_poll_t for each client, and by turn.c before the
 * loop waits.
 *
 * Everything runs in the environment's thread, except the `execute` of works (connecting, copying)
 * and the `run` of jobs (job.h), which use their own struct and the library alone. A work that
 * makes a blocking call of the library runs the callbacks of other requests and watches in its own
 * thread. So callbacks only add completions, and use nothing else that `lock` does not guard.
 */
#ifndef GB_NODE_ADDON_H
#define GB_NODE_ADDON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NAPI_VERSION 8
#include <node_api.h>
#include <uv.h>

#include "gpubuf.h"

struct gb_watching;
struct gb_completion;
struct gb_window;
struct gb_node_job;
struct gb_flow;

/* Of job.h. The lock guards all of it. */
struct gb_jobs {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gb_node_job *first; /* of those that no thread has taken */
    size_t waiting;            /* their number */
    size_t idle;               /* threads without a job */
    pthread_t *threads;
    size_t count;
    bool ending;
};

struct gb_slot {
    struct gpubuf_object *object; /* NULL: free */
    struct gpubuf_bundle *bundle; /* the object's manifest, after its first use */
};

struct gb_node_client {
    struct gb_addon *addon;
    struct gpubuf_client *client; /* NULL once closed */
    double id;                    /* JavaScript's, for its loss and its resumption */
    uint64_t connections;         /* the number of connections so far */
    size_t index;
    struct gb_watching *watches; /* under the addon's lock */
    uv_poll_t poll;
    int events; /* that `poll` waits for; 0: it is stopped */
    bool referenced;
    bool lost;               /* JavaScript is told that the connection has ended */
    bool gathered;           /* requests may wait to be sent */
    _Atomic size_t expected; /* requests under way */
    unsigned look_misses;    /* looks in vain, in a row */
    unsigned look_pause;     /* turns before the next look */
};

struct gb_addon {
    napi_env env;
    uv_loop_t *loop;
    pthread_t thread;
    pthread_mutex_t lock; /* of `closing`, the completions, and all clients' watches */
    size_t references; /* environment, ArrayBuffers, works, poll handles: the last one frees it */
    bool closing;
    bool delivering;
    napi_async_cleanup_hook_handle hook;
    size_t handles; /* libuv's, not closed yet */
    uv_prepare_t before_wait;
    uv_prepare_cb turn; /* the callback of `before_wait`; see turn.h */
    uv_idle_t no_wait;
    uv_async_t from_elsewhere; /* completions were added by another thread */

    napi_ref deliver;
    napi_ref records_reference;
    napi_ref name; /* the async resource */
    napi_async_context context;
    double *records;
    double buffer_max; /* bytes of an ArrayBuffer, at most */

    struct gb_node_client **clients;
    size_t client_count;
    struct gb_slot *objects;
    size_t object_count, object_free; /* no index below `object_free` is free */
    struct gb_completion *completions;
    size_t completion_count, completion_capacity;
    size_t reserved; /* completions of requests under way, for which there is room */
    struct gb_window *windows;
    struct gb_jobs jobs;
    struct gb_flow *flows; /* streams that are not closed */
};

/* Drops a reference; the last one frees it. */
void gb_addon_release(struct gb_addon *addon);
/* The same for a closed handle of libuv's; the last one lets the environment end. */
void gb_handle_closed(struct gb_addon *addon);

#endif
