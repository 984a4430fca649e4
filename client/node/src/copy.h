/*
 * Copies between objects and memory of JavaScript's: works of libuv's pool. Much that is on a GPU
 * goes into pinned memory, which then is the ArrayBuffer. A program's own streams order them, too.
 */
#ifndef GB_NODE_COPY_H
#define GB_NODE_COPY_H

#include "client/node/src/addon.h"

napi_value gb_js_ready(napi_env env, napi_callback_info info);
napi_value gb_js_read(napi_env env, napi_callback_info info);
napi_value gb_js_write(napi_env env, napi_callback_info info);
/* Seals an object when what is queued on a stream is done, as work of its own: the library waits
   for the daemon. Completes with the version. `counts` (may be NULL) are taken over. */
napi_value gb_seal_on(struct gb_addon *addon, napi_value id, struct gpubuf_object *object,
                      int64_t *counts, void *stream);

#endif
