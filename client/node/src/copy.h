/*
 * Copies between objects and JavaScript's memory: work of libuv's pool. Many bytes on a GPU are
 * copied into pinned memory, which becomes the ArrayBuffer. A program's CUDA streams can order the
 * copies.
 */
#ifndef GB_NODE_COPY_H
#define GB_NODE_COPY_H

#include "client/node/src/addon.h"

napi_value gb_js_ready(napi_env env, napi_callback_info info);
napi_value gb_js_read(napi_env env, napi_callback_info info);
napi_value gb_js_write(napi_env env, napi_callback_info info);
/* Seals an object behind the work queued on a stream, as work of libuv's pool, since the library
   waits for the daemon. Completes with the version. `counts` (may be NULL) are taken over. */
napi_value gb_seal_on(struct gb_addon *addon, napi_value id, struct gpubuf_object *object,
                      int64_t *counts, void *stream);

#endif
