/*
 * Memory of objects in JavaScript. Host memory: one external ArrayBuffer for each mapping, which
 * holds the mapping until it is collected, whatever becomes of the objects in it; made anew when it
 * is next needed. Where the runtime has no external ArrayBuffers, lib/ asks for copies.
 */
#ifndef GB_NODE_MEMORY_H
#define GB_NODE_MEMORY_H

#include "client/node/src/addon.h"

napi_value gb_js_memory(napi_env env, napi_callback_info info);
napi_value gb_js_pointer(napi_env env, napi_callback_info info);
/* The buffer's number as lib/ gives it. False after throwing. */
bool gb_read_which(napi_env env, napi_value value, enum gpubuf_which *which);
/* A stretch [from, from + bytes) of a buffer; false after throwing, also where it goes past the
   end. */
bool gb_read_range(napi_env env, const napi_value *values, const struct gpubuf_memory *memory,
                   uint64_t *from, uint64_t *bytes);

bool gb_check_range(napi_env env, const struct gpubuf_memory *memory, uint64_t from,
                    uint64_t bytes);
/* Whether the runtime has external ArrayBuffers: Electron has none. */
bool gb_has_external(napi_env env);
napi_value gb_js_copy(napi_env env, napi_callback_info info);

#endif
