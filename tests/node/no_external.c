/* A runtime that keeps ArrayBuffers to memory of its own, as Electron does: linked into an addon by
   --wrap. */
#include <node_api.h>

napi_status __wrap_napi_create_external_arraybuffer(napi_env env, void *data, size_t length,
                                                    napi_finalize finalize, void *hint,
                                                    napi_value *result);

napi_status __wrap_napi_create_external_arraybuffer(napi_env env, void *data, size_t length,
                                                    napi_finalize finalize, void *hint,
                                                    napi_value *result)
{
    (void)env;
    (void)data;
    (void)length;
    (void)finalize;
    (void)hint;
    (void)result;
    return napi_no_external_buffers_allowed;
}
