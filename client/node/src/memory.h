/*
 * Memory of objects in JavaScript. A mapping of host memory has one external ArrayBuffer, which
 * holds the mapping until it is collected, even after the release of the objects in it. The next
 * use makes another. In a runtime without external ArrayBuffers lib/ asks for copies.
 */
#ifndef GB_NODE_MEMORY_H
#define GB_NODE_MEMORY_H

#include "client/node/src/addon.h"

napi_value gb_js_memory(napi_env env, napi_callback_info info);
napi_value gb_js_detach(napi_env env, napi_callback_info info);
napi_value gb_js_pointer(napi_env env, napi_callback_info info);
/* The buffer of a number of lib/. False after throwing. */
bool gb_read_which(napi_env env, napi_value value, enum gpubuf_which *which);
/* A stretch [from, from + bytes) of a buffer; false after throwing, also for one past the end. */
bool gb_read_range(napi_env env, const napi_value *values, const struct gpubuf_memory *memory,
                   uint64_t *from, uint64_t *bytes);

bool gb_check_range(napi_env env, const struct gpubuf_memory *memory, uint64_t from,
                    uint64_t bytes);
/* Whether the runtime has external ArrayBuffers: Electron has none. */
bool gb_has_external(napi_env env);
napi_value gb_js_copy(napi_env env, napi_callback_info info);

#endif
