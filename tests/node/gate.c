/* A CUDA stream of the fake driver's that stands still until it is told to go on, for Node. */
#include <dlfcn.h>
#include <stdint.h>

#define NAPI_VERSION 8
#include <node_api.h>

#include "tests/fakecuda/fakecuda.h"

static int gate;

static void *driver(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

#define DRIVER(name) ((__typeof__(name) *)driver(#name))

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamQuery(CUstream stream);

/* hold(): the handle of a stream of device 0 that waits for go(); 0n where that cannot be. */
static napi_value hold(napi_env env, napi_callback_info info)
{
    (void)info;
    CUcontext context;
    CUstream stream = NULL;
    napi_value handle = NULL;
    gate = 0;
    if (driver("cuInit") == NULL || DRIVER(cuInit)(0) != CUDA_SUCCESS ||
        DRIVER(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS ||
        DRIVER(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS ||
        DRIVER(cuStreamCreate)(&stream, 1) != CUDA_SUCCESS ||
        DRIVER(fakecuda_wait)(&gate, stream) != CUDA_SUCCESS)
        stream = NULL;
    (void)napi_create_bigint_uint64(env, (uintptr_t)stream, &handle);
    return handle;
}

/* go() */
static napi_value go(napi_env env, napi_callback_info info)
{
    (void)env;
    (void)info;
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* done(stream): whether nothing is queued on it any more. */
static napi_value done(napi_env env, napi_callback_info info)
{
    napi_value value, result = NULL;
    size_t count = 1;
    uint64_t handle = 0;
    bool lossless;
    if (napi_get_cb_info(env, info, &count, &value, NULL, NULL) == napi_ok &&
        napi_get_value_bigint_uint64(env, value, &handle, &lossless) == napi_ok)
        (void)napi_get_boolean(
            env, DRIVER(cuStreamQuery)((CUstream)(uintptr_t)handle) == CUDA_SUCCESS, &result);
    return result;
}

NAPI_MODULE_INIT()
{
    static const struct {
        const char *name;
        napi_callback function;
    } functions[] = {{"hold", hold}, {"go", go}, {"done", done}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        napi_value function;
        if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function,
                                 NULL, &function) != napi_ok ||
            napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
            return NULL;
    }
    return exports;
}
