/* Objects, and views of them. */
#ifndef GB_NODE_OBJECT_H
#define GB_NODE_OBJECT_H

#include "client/node/src/addon.h"

napi_value gb_js_describe(napi_env env, napi_callback_info info);
napi_value gb_js_stale(napi_env env, napi_callback_info info);
napi_value gb_js_release(napi_env env, napi_callback_info info);
napi_value gb_js_child(napi_env env, napi_callback_info info);
napi_value gb_js_column(napi_env env, napi_callback_info info);
napi_value gb_js_slice(napi_env env, napi_callback_info info);
napi_value gb_js_null_count(napi_env env, napi_callback_info info);
/* The index of a view that a call made; an exception with the message if r < 0. */
napi_value gb_view_value(napi_env env, struct gb_addon *addon, int r, struct gpubuf_object *view,
                         const char *message);

#endif
