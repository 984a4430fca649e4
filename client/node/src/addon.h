/*
 * The Node addon. JavaScript sees numbers only: a client and an object are indices
 * into tables of this environment (the main thread's or a worker's), which lib/ keeps to itself.
 *
 * A request is begun by a call that returns at once. Its outcome is a *completion*, which waits
 * here until the library's callbacks have run, and is then handed to JavaScript with all others
 * that came with it, in one call. The library is driven by libuv's own loop: one uv_poll_t per
 * client, and what turn.c does before the loop waits.
 *
 * Everything runs in the environment's thread, except the `execute` of works (connecting, copying),
 * which touch nothing but their own struct and the library. But where such a work makes a blocking
 * call of the library, it is in that thread that callbacks of requests and watches run meanwhile.
 * So these only add completions, and touch nothing else that `lock` does not guard.
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

struct gb_slot {
    struct gpubuf_object *object; /* NULL: free */
    struct gpubuf_bundle *bundle; /* the object's manifest, once it has been asked for */
};

struct gb_node_client {
    struct gb_addon *addon;
    struct gpubuf_client *client; /* NULL once closed */
    double id;                    /* what JavaScript knows it by when it is lost, or made anew */
    uint64_t connections;         /* how many it has had */
    size_t index;
    struct gb_watching *watches; /* under the addon's lock */
    uv_poll_t poll;
    int events; /* what is polled for; 0: not at all */
    bool referenced;
    bool gathered;           /* requests may wait to be sent */
    _Atomic size_t expected; /* requests under way */
    unsigned look_misses;    /* how often in a row looking for an answer was in vain */
    unsigned look_pause;     /* how often not to look before looking again */
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
    uv_prepare_cb turn; /* what is done then; see turn.h */
    uv_idle_t no_wait;
    uv_async_t from_elsewhere; /* completions were added by another thread */

    napi_ref deliver;
    napi_ref records_reference;
    napi_ref name; /* the async resource */
    napi_async_context context;
    double *records;
    double buffer_max; /* what an ArrayBuffer may cover */

    struct gb_node_client **clients;
    size_t client_count;
    struct gb_slot *objects;
    size_t object_count, object_free; /* no index below `object_free` is free */
    struct gb_completion *completions;
    size_t completion_count, completion_capacity;
    struct gb_window *windows;
};

/* Drops a reference; the last one frees it. */
void gb_addon_release(struct gb_addon *addon);
/* As that, for a handle of libuv's that has been closed; the last of these lets the environment
   end. */
void gb_handle_closed(struct gb_addon *addon);

#endif
