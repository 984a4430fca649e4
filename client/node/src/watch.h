/* The calls that begin and end a watch, and the beginning of a provider. */
#ifndef GB_NODE_WATCH_H
#define GB_NODE_WATCH_H

#include "client/node/src/watching.h"

typedef int gb_watching_begin_fn(struct gpubuf_client *client, const char *prefix,
                                 struct gb_watching *watch, uint64_t *request);
/* Begins a watch or a provider, for a call (client, id, prefix). The answer to `begin` must call
   gb_watching_answered(). */
napi_value gb_watching_begin(napi_env env, napi_callback_info info, gb_watching_begin_fn *begin);
napi_value gb_js_watch(napi_env env, napi_callback_info info);
napi_value gb_js_unwatch(napi_env env, napi_callback_info info);

#endif
