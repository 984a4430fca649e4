/*
 * Copies between objects and memory of JavaScript's: works of libuv's pool. Much that is on a GPU
 * goes into pinned memory, which then is the ArrayBuffer.
 */
#ifndef GB_NODE_COPY_H
#define GB_NODE_COPY_H

#include "client/node/src/addon.h"

napi_value gb_js_ready(napi_env env, napi_callback_info info);
napi_value gb_js_read(napi_env env, napi_callback_info info);
napi_value gb_js_write(napi_env env, napi_callback_info info);

#endif
