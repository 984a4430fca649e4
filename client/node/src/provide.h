/* Prefixes that a client provides. */
#ifndef GB_NODE_PROVIDE_H
#define GB_NODE_PROVIDE_H

#include "client/node/src/addon.h"

napi_value gb_js_provide(napi_env env, napi_callback_info info);
napi_value gb_js_provide_end(napi_env env, napi_callback_info info);
napi_value gb_js_decline(napi_env env, napi_callback_info info);

#endif
