/*
 * What the Node addon is made of. JavaScript sees numbers only: a client and an object are indices
 * into tables of this environment (the main thread's or a worker's), which lib/ keeps to itself.
 *
 * A request is begun by a call that returns at once. Its outcome is a *completion*, which waits here
 * until the library's callbacks have run, and is then handed to JavaScript with all others that came
 * with it, in one call. The library is driven by libuv's own loop: one uv_poll_t per client, and what
 * turn.c does before the loop waits.
 *
 * Everything runs in the environment's thread, except the `execute` of works (connecting, copying),
 * which touch nothing but their own struct and the library. But where such a work makes a blocking call
 * of the library, it is in that thread that callbacks of requests and watches run meanwhile. So these
 * only add completions, and touch nothing else that `lock` does not guard.
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

#include "client/lib/objects/hold.h"
#include "client/lib/objects/pinned.h"
#include "gpubuf.h"

#define GB_RECORDS 256      /* completions handed over in one call */
#define GB_RECORD_NUMBERS 4 /* id, status, value, kind */
#define GB_LOOK_CLIENTS 16  /* whose answers are looked for */

enum gb_done {
    GB_DONE_PLAIN,  /* status; value: a number */
    GB_DONE_OBJECT, /* value: an object's index; kind: what it is */
    GB_DONE_MANY,   /* an array of index * 4 + kind, or negative codes */
    GB_DONE_TEXT,   /* a string */
    GB_DONE_EVENT,  /* of a watch: [kind, object or null] */
    GB_DONE_LOST,   /* a client's connection has ended */
    GB_DONE_CLIENT, /* value: a client's index; [instance, session] */
    GB_DONE_BUFFER, /* an ArrayBuffer, of `block` if that is not NULL */
};

struct gb_completion {
    double id;
    int status;
    enum gb_done type;
    double value;
    struct gpubuf_object *object;   /* OBJECT */
    struct gpubuf_object **objects; /* MANY: `count` of them, owned; errors follow in `errors` */
    int *errors;
    size_t count;
    char *text; /* owned: the sentence of a failure, a result, an event's kind */
    struct gpubuf_info *info;
    napi_ref reference;      /* BUFFER */
    struct gb_pinned *block; /* BUFFER: owned */
};

struct gb_watching;

struct gb_node_client {
    struct gb_addon *addon;
    struct gpubuf_client *client; /* NULL once closed */
    double id;                    /* what JavaScript knows it by when it is lost */
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
    struct gpubuf_object **objects;   /* NULL: free */
    size_t object_count, object_free; /* no index below `object_free` is free */
    struct gb_completion *completions;
    size_t completion_count, completion_capacity;
    struct gb_window *windows;
};

/* ---- values.c: reading what JavaScript gave, throwing ---- */

#define GB_ARGUMENTS_MAX 8

/* The call's arguments, padded with undefined, and the addon. */
struct gb_addon *gb_arguments(napi_env env, napi_callback_info info, napi_value *values);

/* False after throwing a TypeError that names `what`. */
bool gb_read_number(napi_env env, napi_value value, const char *what, double *number);
bool gb_read_index(napi_env env, napi_value value, const char *what, uint64_t *number);
/* A copy of a string, for free(); NULL for undefined and null, which is no failure. A NUL inside is. */
bool gb_read_text(napi_env env, napi_value value, const char *what, char **text);
bool gb_read_flag(napi_env env, napi_value value);
bool gb_is_absent(napi_env env, napi_value value);
napi_value gb_member(napi_env env, napi_value object, const char *name);
uint32_t gb_array_length(napi_env env, napi_value array);

napi_value gb_number(napi_env env, double number);
napi_value gb_text(napi_env env, const char *text);

/* Throws what a failed call of the library was: an Error with `status`, for lib/ to translate. */
napi_value gb_throw(napi_env env, int status, const char *message);
napi_value gb_throw_memory(napi_env env);

/* ---- module.c: tables, completions ---- */

/* An index for an object, which is taken over; -1 (and released) without memory. */
double gb_object_add(struct gb_addon *addon, struct gpubuf_object *object);
/* The object of an index; NULL after throwing. */
struct gpubuf_object *gb_object_at(struct gb_addon *addon, napi_value value, size_t *index);
struct gpubuf_object *gb_object_take(struct gb_addon *addon, size_t index);

/* Adds a completion, from any thread; without memory what it holds is given back, and the client's process goes on
   with a request that never ends, which is all that can be done. */
void gb_complete(struct gb_addon *addon, const struct gb_completion *completion);
/* Copies text for a completion, so that NULL means that there is none. */
char *gb_copy(const char *text);

bool gb_has_completions(struct gb_addon *addon);
/* Hands all completions over: from libuv's loop, or from inside a call of JavaScript's. */
void gb_deliver_from_loop(struct gb_addon *addon);
void gb_deliver_from_call(struct gb_addon *addon);

void gb_addon_release(struct gb_addon *addon);

/* ---- client.c ---- */

struct gb_node_client *gb_client_at(struct gb_addon *addon, napi_value value);
/* To be called after whatever may have queued output: it is sent before the loop waits. */
void gb_client_poll(struct gb_node_client *client);
/* Sends that, and polls for room if it is not taken. */
void gb_client_send(struct gb_node_client *client);
/* Receives what is there and hands it over, which may close the client. Whether there was any. */
bool gb_client_receive(struct gb_node_client *client);
void gb_client_close(struct gb_node_client *client);
/* Frees its watches, after it has been disconnected. */
void gb_watches_free(struct gb_node_client *client);

/* Counts down the handles of libuv's; the last one lets the environment end. */
void gb_handle_closed(struct gb_addon *addon);

napi_value gb_js_connect(napi_env env, napi_callback_info info);
napi_value gb_js_close(napi_env env, napi_callback_info info);
napi_value gb_js_reference(napi_env env, napi_callback_info info);

/* ---- turn.c ---- */

void gb_turns_begin(struct gb_addon *addon);
void gb_turns_end(struct gb_addon *addon);
/* From now on, as long as a client expects answers. */
void gb_turns_need(struct gb_addon *addon);

/* ---- request.c ---- */

napi_value gb_js_open(napi_env env, napi_callback_info info);
napi_value gb_js_open_many(napi_env env, napi_callback_info info);
napi_value gb_js_call(napi_env env, napi_callback_info info);
napi_value gb_js_watch(napi_env env, napi_callback_info info);
napi_value gb_js_unwatch(napi_env env, napi_callback_info info);
napi_value gb_js_cancel(napi_env env, napi_callback_info info);
napi_value gb_js_seal(napi_env env, napi_callback_info info);
/* The callback of requests that bring an object, and its argument. */
void gb_on_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                  void *arg);
struct gb_pending;
struct gb_pending *gb_pending_new(struct gb_node_client *client, napi_value id);
/* What a call that begins a request returns: its number, or an exception. */
napi_value gb_begun(napi_env env, struct gb_node_client *client, struct gb_pending *pending, int r,
                    uint64_t request);

/* ---- create.c ---- */

napi_value gb_js_create(napi_env env, napi_callback_info info);

/* ---- object.c ---- */

napi_value gb_js_describe(napi_env env, napi_callback_info info);
napi_value gb_js_release(napi_env env, napi_callback_info info);
napi_value gb_js_child(napi_env env, napi_callback_info info);
napi_value gb_js_column(napi_env env, napi_callback_info info);
napi_value gb_js_slice(napi_env env, napi_callback_info info);
napi_value gb_js_null_count(napi_env env, napi_callback_info info);

/* ---- memory.c ---- */

napi_value gb_js_memory(napi_env env, napi_callback_info info);
napi_value gb_js_pointer(napi_env env, napi_callback_info info);
/* The buffer's number as lib/ gives it. False after throwing. */
bool gb_read_which(napi_env env, napi_value value, enum gpubuf_which *which);
/* A stretch [from, from + bytes) of a buffer; false after throwing, also where it goes past the end. */
bool gb_read_range(napi_env env, const napi_value *values, const struct gpubuf_memory *memory,
                   uint64_t *from, uint64_t *bytes);

bool gb_check_range(napi_env env, const struct gpubuf_memory *memory, uint64_t from,
                    uint64_t bytes);
/* Whether the runtime has external ArrayBuffers: Electron has none. */
bool gb_has_external(napi_env env);
napi_value gb_js_copy(napi_env env, napi_callback_info info);

/* ---- copy.c ---- */

/* An ArrayBuffer of a block, which is taken over; NULL after an exception. */
napi_value gb_block_value(napi_env env, struct gb_pinned *block);
napi_value gb_js_ready(napi_env env, napi_callback_info info);
napi_value gb_js_read(napi_env env, napi_callback_info info);
napi_value gb_js_write(napi_env env, napi_callback_info info);

#endif
