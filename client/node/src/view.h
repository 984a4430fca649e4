/* Views, and other calls that open what the library opens only while it waits: as jobs. */
#ifndef GB_NODE_VIEW_H
#define GB_NODE_VIEW_H

#include "client/node/src/addon.h"

napi_value gb_js_follow(napi_env env, napi_callback_info info);
napi_value gb_js_show(napi_env env, napi_callback_info info);
napi_value gb_js_unfollow(napi_env env, napi_callback_info info);
napi_value gb_js_edit(napi_env env, napi_callback_info info);

#endif
