#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- errors ---- */

static const struct {
    const char *name;
    CUresult value;
} constants[] = {
#define CONSTANT(name, value) {#name, (value)},
    GB_CUDA_CONSTANT_MAP(CONSTANT)
#undef CONSTANT
};

static const char *name_of(CUresult error)
{
    for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++)
        if (constants[i].value == error && !strncmp(constants[i].name, "CUDA_", 5))
            return constants[i].name;
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    FC_ENTER_AS(cuGetErrorName, true);
    const char *name = name_of(error);
    if (!text || !name)
        return CUDA_ERROR_INVALID_VALUE;
    *text = name;
    return CUDA_SUCCESS;
}

/* "out of memory" for CUDA_ERROR_OUT_OF_MEMORY, made once. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
    static char texts[sizeof(constants) / sizeof(*constants)][64];
    FC_ENTER_AS(cuGetErrorString, true);
    FC_LOCKED;
    const char *name = name_of(error);
    if (!text || !name)
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = 0;
    while (constants[row].name != name)
        row++;
    const char *from = error == CUDA_SUCCESS ? "no error" : name + strlen("CUDA_ERROR_");
    for (size_t i = 0; i < sizeof(texts[row]) - 1 && from[i]; i++)
        texts[row][i] = (char)(from[i] == '_' ? ' ' : tolower((unsigned char)from[i]));
    *text = texts[row];
    return CUDA_SUCCESS;
}

/* ---- symbols ---- */

static CUresult look_up(const char *symbol, void **function, int version,
                        CUdriverProcAddressQueryResult *why)
{
    static const struct {
        const char *name;
        int version;
        void (*function)(void);
    } functions[] = {
#define FUNCTION(name, suffix, version, hip, parameters)                                           \
    {#name, (version), (void (*)(void))name##suffix},
        GB_CUDA_FUNCTION_MAP(FUNCTION)
#undef FUNCTION
    };
    enum { FOUND, NOT_FOUND, TOO_OLD };
    *function = NULL;
    *why = NOT_FOUND;
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        if (strcmp(functions[i].name, symbol) || functions[i].version > fc_settings.version)
            continue;
        *why = functions[i].version <= version ? FOUND : TOO_OLD;
        if (*why == FOUND)
            memcpy(function, &functions[i].function, sizeof(*function));
    }
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FC_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version,
                                    cuuint64_t flags);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    FC_ENTER_AS(cuGetProcAddress, true);
    CUdriverProcAddressQueryResult why;
    if (!symbol || !function || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    return look_up(symbol, function, version, &why);
}

FC_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                       cuuint64_t flags, CUdriverProcAddressQueryResult *why);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *why)
{
    FC_ENTER_AS(cuGetProcAddress_v2, true);
    CUdriverProcAddressQueryResult unused;
    if (!symbol || !function || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    return look_up(symbol, function, version, why ? why : &unused);
}

FC_EXPORT uint64_t fakecuda_calls(const char *function)
{
    FC_LOCKED;
    return fc_gate_calls(function);
}

/* ---- devices ---- */

CUresult cuInit(unsigned int flags)
{
    FC_ENTER_AS(cuInit, true);
    FC_LOCKED;
    return flags ? CUDA_ERROR_INVALID_VALUE : fc_init();
}

CUresult cuDriverGetVersion(int *version)
{
    FC_ENTER_AS(cuDriverGetVersion, true);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = fc_settings.version;
    return CUDA_SUCCESS;
}

/* The physical device of an ordinal, if it works. */
static CUresult device_of(CUdevice ordinal, int *device)
{
    *device = fc_physical(ordinal);
    return *device < 0 ? CUDA_ERROR_INVALID_DEVICE : fc_lost(*device);
}

CUresult cuDeviceGetCount(int *count)
{
    FC_ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = fc_settings.visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    FC_ENTER(cuDeviceGet);
    int physical;
    CUresult result = device_of(ordinal, &physical);
    if (result == CUDA_SUCCESS && !device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    FC_ENTER(cuDeviceGetName);
    int physical;
    CUresult result = device_of(device, &physical);
    if (result != CUDA_SUCCESS)
        return result;
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", fc_settings.name);
    return CUDA_SUCCESS;
}

/* "GPU-fa4ecada-0000-4000-8000-00000000000N"; see visible_item for how they are written. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    FC_ENTER(cuDeviceGetUuid);
    int physical;
    CUresult result = device_of(device, &physical);
    if (result != CUDA_SUCCESS)
        return result;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned char bytes[16] = {0xfa, 0x4e, 0xca, 0xda, 0, 0, 0x40, 0, 0x80};
    if (fc_settings.mig) {
        bytes[2] = 0x03;
        bytes[3] = 0x19;
    }
    bytes[15] = (unsigned char)physical;
    memcpy(uuid, bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    FC_ENTER(cuDeviceTotalMem);
    int physical;
    CUresult result = device_of(device, &physical);
    if (result == CUDA_SUCCESS && !bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *bytes = fc_settings.memory;
    return result;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } values[] = {
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0},
    };
    FC_ENTER(cuDeviceGetAttribute);
    int physical;
    CUresult result = device_of(device, &physical);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; value && i < sizeof(values) / sizeof(*values); i++) {
        if (values[i].attribute != attribute)
            continue;
        *value = fc_attribute_override((int)attribute, values[i].value);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    FC_ENTER(cuDeviceGetPCIBusId);
    int physical;
    CUresult result = device_of(device, &physical);
    if (result != CUDA_SUCCESS)
        return result;
    if (!id || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)length, "0000:%02x:00.0", (unsigned int)physical + 0xf0);
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    FC_ENTER(cuDeviceCanAccessPeer);
    int one, other;
    CUresult result = device_of(device, &one);
    if (result == CUDA_SUCCESS)
        result = device_of(peer, &other);
    if (result == CUDA_SUCCESS && !can)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *can = one != other && fc_settings.peer;
    return result;
}
