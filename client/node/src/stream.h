/* Streams of frames. JavaScript looks for a frame, a job waits for one. */
#ifndef GB_NODE_STREAM_H
#define GB_NODE_STREAM_H

#include "client/node/src/addon.h"

napi_value gb_js_stream(napi_env env, napi_callback_info info);
napi_value gb_js_stream_now(napi_env env, napi_callback_info info);
napi_value gb_js_stream_wait(napi_env env, napi_callback_info info);
napi_value gb_js_stream_stop(napi_env env, napi_callback_info info);
napi_value gb_js_stream_pass(napi_env env, napi_callback_info info);
napi_value gb_js_stream_order(napi_env env, napi_callback_info info);
napi_value gb_js_stream_close(napi_env env, napi_callback_info info);
/* Closes all streams; those that wait, in a moment. */
void gb_streams_end(struct gb_addon *addon);

#endif
