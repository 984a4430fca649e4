/* create(): layouts out of JavaScript. */
#ifndef GB_NODE_CREATE_H
#define GB_NODE_CREATE_H

#include "client/node/src/addon.h"

napi_value gb_js_create(napi_env env, napi_callback_info info);

#endif
