/* The arrays of a bundle. Its manifest is read at its first use, and kept until the release. */
#ifndef GB_NODE_BUNDLE_H
#define GB_NODE_BUNDLE_H

#include "client/node/src/addon.h"

napi_value gb_js_manifest(napi_env env, napi_callback_info info);
napi_value gb_js_tensor(napi_env env, napi_callback_info info);

#endif
