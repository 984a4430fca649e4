/* Requests: each begins with a call that returns its number, and ends as a completion. */
#ifndef GB_NODE_REQUEST_H
#define GB_NODE_REQUEST_H

#include "client/node/src/client.h"

napi_value gb_js_open(napi_env env, napi_callback_info info);
napi_value gb_js_open_cached(napi_env env, napi_callback_info info);
napi_value gb_js_open_many(napi_env env, napi_callback_info info);
napi_value gb_js_call(napi_env env, napi_callback_info info);
napi_value gb_js_cancel(napi_env env, napi_callback_info info);
napi_value gb_js_seal(napi_env env, napi_callback_info info);
/* The callback of requests for an object; `arg` is the gb_pending. */
void gb_on_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                  void *arg);
struct gb_pending;
struct gb_pending *gb_pending_new(struct gb_node_client *client, napi_value id);
/* The result of a call that begins a request: its number, or an exception. */
napi_value gb_begun(napi_env env, struct gb_node_client *client, struct gb_pending *pending, int r,
                    uint64_t request);

#endif
