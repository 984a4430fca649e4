#include "fake.h"

#include <unistd.h>

#define STACK 64

static struct fc_context contexts[FC_DEVICES];

/* The contexts pushed in this thread; the last is current. */
static _Thread_local struct fc_context *stack[STACK];
static _Thread_local int depth;

CUresult fc_context_check(const struct fc_context *context)
{
    if (!context->retained)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult lost = fc_lost(context->device);
    return lost != CUDA_SUCCESS ? lost : context->failed;
}

CUresult fc_context_current(struct fc_context **context)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
    return fc_context_check(stack[depth - 1]);
}

static struct fc_context *context_of(CUcontext handle)
{
    for (int i = 0; i < FC_DEVICES; i++)
        if ((CUcontext)&contexts[i] == handle && contexts[i].ever)
            return &contexts[i];
    return NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal)
{
    FC_ENTER(cuDevicePrimaryCtxRetain);
    FC_LOCKED;
    int device = fc_physical(ordinal);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = fc_lost(device);
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_context *context = &contexts[device];
    if (!context->ever || context->fd < 0) {
        uint64_t id;
        result = fc_store_create('c', device, fc_settings.context, false, &id, &context->fd);
        if (result != CUDA_SUCCESS) {
            context->fd = -1;
            return result;
        }
        context->device = device;
        context->ever = true;
    }
    context->retained++;
    *handle = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    FC_ENTER(cuDevicePrimaryCtxRelease);
    FC_LOCKED;
    int device = fc_physical(ordinal);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct fc_context *context = &contexts[device];
    if (!context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->retained > 1) {
        context->retained--;
        return CUDA_SUCCESS;
    }
    fc_context_drain(context);
    if (--context->retained) /* it was retained anew while this waited */
        return CUDA_SUCCESS;
    fc_context_end_streams(context);
    if (context->retained || context->fd < 0)
        return CUDA_SUCCESS;
    fc_context_end_memory(context);
    close(context->fd);
    context->fd = -1;
    context->failed = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    FC_ENTER(cuDevicePrimaryCtxGetState);
    FC_LOCKED;
    int device = fc_physical(ordinal);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    *active = contexts[device].retained > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    FC_ENTER(cuCtxPushCurrent);
    FC_LOCKED;
    struct fc_context *context = context_of(handle);
    if (!context)
        return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    if (depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    FC_ENTER(cuCtxPopCurrent);
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (handle)
        *handle = (CUcontext)stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
    FC_ENTER(cuCtxGetCurrent);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = depth ? (CUcontext)stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *ordinal)
{
    FC_ENTER(cuCtxGetDevice);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && !ordinal)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *ordinal = fc_ordinal(context->device);
    return result;
}

CUresult cuCtxSynchronize(void)
{
    FC_ENTER(cuCtxSynchronize);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    return result == CUDA_SUCCESS ? fc_context_drain(context) : result;
}
