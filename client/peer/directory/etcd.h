/*
 * Requests to etcd, by its JSON gateway (/v3/ of etcd 3.4 and later) over libcurl, driven by libuv.
 *
 * A request goes to the endpoint that answered last. If that endpoint refuses, is silent for
 * `timeout_ms` or has no leader, the request goes to the next, to each endpoint once. So etcd may
 * do a request twice: the caller must be able to tell (directory_etcd.c can). Every request ends
 * with one callback, never before the call that made it returns.
 *
 * All of it runs on the loop's thread. A callback may make and cancel requests; it must not destroy
 * the client.
 */
#ifndef GB_PEER_ETCD_H
#define GB_PEER_ETCD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "client/peer/base/figures.h"
#include "proto/base/errors.h"
#include "proto/wire/json.h"

enum { GB_PEER_ETCD_ENDPOINTS = 16 };

/* The strings outlive the client. */
struct gb_peer_etcd_settings {
    const char *endpoints[GB_PEER_ETCD_ENDPOINTS]; /* "https://a:2379" */
    size_t endpoint_count;
    const char *ca, *certificate, *key; /* files; NULL: the system's authorities; no certificate */
    unsigned timeout_ms;                /* of a request at one endpoint */
    struct gb_peer_figures *figures;    /* of the requests; may be NULL */
};

struct gb_peer_etcd;
struct gb_peer_etcd_call;

/*
 * An answer: `code` 0 and the whole value. Its text and tape, and whatever is allocated in `pool`,
 * live during the callback only. Or a failure: a negative code, an absent value and error->message.
 * GPUBUF_E_UNAVAILABLE: no endpoint answered, or etcd could not; GPUBUF_E_NOT_FOUND: there is no
 * such lease; GPUBUF_E_DENIED; GPUBUF_E_PROTOCOL: the answer makes no sense. A stream's callback
 * runs for each line with code 0, and once with another code, which ends it (GPUBUF_E_UNAVAILABLE
 * also if etcd ended it in good order).
 */
typedef void (*gb_peer_etcd_cb)(void *user, int code, struct gb_json value, struct gb_pool *pool,
                                const struct gb_error *error);

int gb_peer_etcd_create(uv_loop_t *loop, const struct gb_peer_etcd_settings *settings,
                        struct gb_peer_etcd **out, struct gb_error *error);
/* Ends all requests without their callbacks. The loop must run until the client's handles are
   closed. */
void gb_peer_etcd_destroy(struct gb_peer_etcd *etcd);

/*
 * Asks `method` ("kv/txn") with `body`, a JSON text, which is taken over and leaves the writer
 * empty. NULL: memory is out, or the writer had failed; then no callback runs. The call frees
 * itself after its callback.
 */
struct gb_peer_etcd_call *gb_peer_etcd_call(struct gb_peer_etcd *etcd, const char *method,
                                            struct gb_writer *body, gb_peer_etcd_cb callback,
                                            void *user);
/* gb_peer_etcd_call for a method whose answer is a stream of lines; at one endpoint only. */
struct gb_peer_etcd_call *gb_peer_etcd_stream(struct gb_peer_etcd *etcd, const char *method,
                                              struct gb_writer *body, gb_peer_etcd_cb callback,
                                              void *user);
/* Ends a request whose last callback has not run, and will not run then. May be called in its
   callback. NULL is ignored. */
void gb_peer_etcd_cancel(struct gb_peer_etcd_call *call);

/* The endpoint that requests go to now; for messages, and to see that it has changed. */
const char *gb_peer_etcd_endpoint(const struct gb_peer_etcd *etcd);

/* ---- what requests and answers are made of ---- */

/* Writes "NAME":"base64 of the bytes". */
void gb_peer_etcd_write_bytes(struct gb_writer *writer, const char *name, const void *bytes,
                              size_t length);
/* A member of an object; absent if there is none, or if `object` is absent or no object. */
struct gb_json gb_peer_etcd_member(struct gb_json object, const char *name);
/* A 64-bit number as the gateway writes it: a string of digits, or nothing for 0. */
uint64_t gb_peer_etcd_number(struct gb_json value);
bool gb_peer_etcd_is_true(struct gb_json value);
uint64_t gb_peer_etcd_revision(struct gb_json answer); /* of its header */
/* The bytes of a base64 member, in the pool, with a NUL at the end. NULL if it is absent or
   malformed, or if memory is out. */
char *gb_peer_etcd_bytes(struct gb_json value, struct gb_pool *pool, size_t *length);

#endif
