/* GPUs, through the drivers of CUDA and HIP. Making memory for share=fd takes no context of CUDA,
   and so none of the device's memory: this file has a context only while there are segments for
   share=ipc. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/memory/cuda_copy.h"
#include "daemon/memory/device.h"
#include "proto/driver/cuda.h"

/* Tries, a second apart, to start a driver that is not ready yet at boot. */
#define START_TRIES 30

struct cuda_device {
    struct gb_cuda_gpu gpu;
    const struct gb_cuda *cuda;
    CUdevice device;
    CUmemAllocationProp properties; /* of memory for share=fd */
    size_t total;                   /* bytes of the GPU's memory */
    bool can_fd, can_ipc;
    /* The mover's own. */
    CUcontext context; /* NULL: none */
    uint64_t context_users;
};

static const struct cuda_device *of(const struct gb_device *device)
{
    return (const struct cuda_device *)device;
}

bool gb_device_cuda_lost(const char *cuda_error)
{
    static const char *const fatal[] = {
        "CUDA_ERROR_DEVICE_UNAVAILABLE",   "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_LAUNCH_FAILED",        "hipErrorNoDevice",     "hipErrorECCNotCorrectable",
        "CUDA_ERROR_HARDWARE_STACK_ERROR", "hipErrorLaunchFailure"};

    for (size_t i = 0; cuda_error && i < sizeof(fatal) / sizeof(fatal[0]); i++)
        if (strcmp(fatal[i], cuda_error) == 0)
            return true;
    return false;
}

static bool cuda_can_share(const struct gb_device *base, enum gb_share share)
{
    return share == GB_SHARE_FD ? of(base)->can_fd : of(base)->can_ipc;
}

/* ---- share=fd: memory passed as a descriptor ---- */

static int create_fd(struct cuda_device *device, uint64_t bytes, struct gb_memory *memory,
                     struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUmemGenericAllocationHandle handle;
    CUresult result = cuda->cuMemCreate(&handle, bytes, &device->properties, 0);
    int fd = -1;

    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "making a segment of %" PRIu64 " bytes on %s",
                            bytes, device->gpu.base.id);
    result = cuda->cuMemExportToShareableHandle(&fd, handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    cuda->cuMemRelease(handle); /* from now on the descriptor keeps the memory */
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "exporting a segment of %s", device->gpu.base.id);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *memory = (struct gb_memory){.kind = GB_HANDLE_CUDA_FD, .write_fd = fd, .read_fd = fd};
    return 0;
}

/* Whether an answer of the driver means that the registered memory is wrong, not the driver. */
static bool is_clients_fault(CUresult result)
{
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
           result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_UNKNOWN;
}

/* Whether the handle's memory has `bytes`. The driver checks a size only when it maps memory, so
   this maps it, without access. */
static int check_size(const struct gb_cuda *cuda, CUmemGenericAllocationHandle handle,
                      uint64_t bytes, struct gb_error *error)
{
    CUdeviceptr address = 0;
    CUresult result = cuda->cuMemAddressReserve(&address, bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "reserving addresses for registered memory");
    result = cuda->cuMemMap(address, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS)
        cuda->cuMemUnmap(address, bytes);
    cuda->cuMemAddressFree(address, bytes);
    if (result == CUDA_SUCCESS)
        return 0;
    if (!is_clients_fault(result))
        return gb_cuda_fail(error, cuda, result, "mapping registered memory");
    return gb_fail(error, GPUBUF_E_INVALID,
                   "the memory does not have the %" PRIu64 " bytes that were announced (%s)", bytes,
                   gb_cuda_error_name(cuda, result));
}

static int check_import(struct cuda_device *device, CUmemGenericAllocationHandle handle,
                        uint64_t bytes, struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUmemAllocationProp properties;
    CUresult result = cuda->cuMemGetAllocationPropertiesFromHandle(&properties, handle);

    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "looking at registered memory");
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.location.id != device->device)
        return gb_fail(error, GPUBUF_E_INVALID, "the memory is not on %s", device->gpu.base.id);
    return check_size(cuda, handle, bytes, error);
}

static int adopt_fd(struct cuda_device *device, int fd, uint64_t bytes, struct gb_memory *memory,
                    struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUmemGenericAllocationHandle handle;
    CUresult result;
    int r, copy;

    if (bytes % device->gpu.base.granularity != 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "bytes: %" PRIu64 " is no multiple of %" PRIu64
                       ", as memory of cuMemCreate has",
                       bytes, device->gpu.base.granularity);
    result = cuda->cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (is_clients_fault(result))
        return gb_fail(error, GPUBUF_E_INVALID, "the descriptor is no memory of a GPU (%s)",
                       gb_cuda_error_name(cuda, result));
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "importing registered memory");
    r = check_import(device, handle, bytes, error);
    if (r == 0 && cuda->driver == GB_HIP && lseek(fd, 0, SEEK_END) < (off_t)bytes)
        r = gb_fail(error, GPUBUF_E_INVALID, /* a dma-buf tells its size */
                    "the memory does not have the %" PRIu64 " bytes that were announced", bytes);
    cuda->cuMemRelease(handle);
    if (r < 0)
        return r;
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return gb_fail(error, GPUBUF_E_LIMIT, "the daemon cannot open another descriptor: %s",
                       strerror(errno));
    *memory = (struct gb_memory){.kind = GB_HANDLE_CUDA_FD, .write_fd = copy, .read_fd = copy};
    return 0;
}

/* ---- share=ipc: 64 bytes that name memory of cuMemAlloc ---- */

/* Releases the context if no segment needs it. */
static void drop_context(struct cuda_device *device)
{
    if (!device->context || device->context_users > 0)
        return;
    device->cuda->cuDevicePrimaryCtxRelease(device->device);
    device->context = NULL;
}

static int enter_context(struct cuda_device *device, struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUcontext context = device->context;
    CUresult result = CUDA_SUCCESS;

    if (!context)
        result = cuda->cuDevicePrimaryCtxRetain(&context, device->device);
    if (result == CUDA_SUCCESS) {
        device->context = context;
        result = cuda->cuCtxPushCurrent(context);
    }
    if (result == CUDA_SUCCESS)
        return 0;
    drop_context(device);
    return gb_cuda_fail(error, cuda, result, "making a context on %s", device->gpu.base.id);
}

static void leave_context(struct cuda_device *device)
{
    CUcontext context;

    device->cuda->cuCtxPopCurrent(&context);
    drop_context(device);
}

static int create_ipc(struct cuda_device *device, uint64_t bytes, struct gb_memory *memory,
                      struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUipcMemHandle handle;
    CUdeviceptr pointer = 0;
    CUresult result;
    int r = enter_context(device, error);

    if (r < 0)
        return r;
    result = cuda->cuMemAlloc(&pointer, bytes);
    if (result == CUDA_SUCCESS) {
        result = cuda->cuIpcGetMemHandle(&handle, pointer);
        if (result != CUDA_SUCCESS)
            cuda->cuMemFree(pointer);
    }
    if (result == CUDA_SUCCESS) {
        *memory = (struct gb_memory){
            .kind = GB_HANDLE_CUDA_IPC, .write_fd = -1, .read_fd = -1, .pointer = pointer};
        memcpy(memory->ipc, handle.reserved, sizeof(memory->ipc));
        device->context_users++;
    }
    leave_context(device);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result,
                            "making a segment of %" PRIu64 " bytes for share=ipc on %s", bytes,
                            device->gpu.base.id);
    return 0;
}

/* Memory that cannot be freed ends with the context, at the latest. */
static void destroy_ipc(struct cuda_device *device, struct gb_memory *memory)
{
    const struct gb_cuda *cuda = device->cuda;
    struct gb_error error;
    CUresult result;
    int r;

    if (!memory->pointer)
        return; /* its producer's */
    device->context_users--;
    r = enter_context(device, &error);
    if (r == 0) {
        result = cuda->cuMemFree(memory->pointer);
        if (result != CUDA_SUCCESS)
            r = gb_cuda_fail(&error, cuda, result, "freeing a segment of %s", device->gpu.base.id);
        leave_context(device);
    }
    if (r < 0)
        gb_log(GB_LOG_ERROR, "segment not freed", GB_LOG_TEXT("why", error.message));
}

/* ---- the table ---- */

static int cuda_create(struct gb_device *base, enum gb_share share, uint64_t bytes,
                       struct gb_memory *memory, struct gb_error *error)
{
    struct cuda_device *device = (struct cuda_device *)base;

    return share == GB_SHARE_FD ? create_fd(device, bytes, memory, error)
                                : create_ipc(device, bytes, memory, error);
}

static int cuda_adopt(struct gb_device *base, const struct gb_handle *handle, int fd,
                      struct gb_memory *memory, struct gb_error *error)
{
    struct cuda_device *device = (struct cuda_device *)base;
    bool hip = device->cuda->driver == GB_HIP;
    int r;

    if (handle->kind == GB_HANDLE_CUDA_FD) {
        r = hip ? enter_context(device, error) : 0; /* HIP imports to the current device */
        if (r < 0)
            return r;
        r = adopt_fd(device, fd, handle->bytes, memory, error);
        if (hip)
            leave_context(device);
        return r;
    }
    if (handle->kind != GB_HANDLE_CUDA_IPC)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "a GPU adopts handles of kind cuda_fd and cuda_ipc");
    /* Opening the memory would take a context, and would not prove that readers can open it. */
    *memory = (struct gb_memory){.kind = GB_HANDLE_CUDA_IPC, .write_fd = -1, .read_fd = -1};
    memcpy(memory->ipc, handle->ipc, sizeof(memory->ipc));
    return 0;
}

static void cuda_destroy(struct gb_device *base, struct gb_memory *memory)
{
    struct cuda_device *device = (struct cuda_device *)base;

    if (memory->kind == GB_HANDLE_CUDA_IPC) {
        destroy_ipc(device, memory);
    } else if (memory->write_fd >= 0) {
        gb_cuda_copier_forget(&device->gpu.copier, memory->write_fd);
        close(memory->write_fd);
    }
    memory->write_fd = memory->read_fd = -1;
    memory->pointer = 0;
}

/* Accepts the descriptor unchecked: whether it is valid shows when it is mapped. */
static int cuda_restore(const struct gb_device *device, enum gb_handle_kind kind, int fd,
                        uint64_t bytes, struct gb_memory *memory, struct gb_error *error)
{
    if (kind != GB_HANDLE_CUDA_FD)
        return gb_fail(error, GPUBUF_E_INVALID, "it is no memory of %s", device->id);
    *memory = (struct gb_memory){.kind = kind, .write_fd = fd, .read_fd = fd};
    return 0;
}

static void cuda_end(struct gb_device *base)
{
    gb_cuda_copier_end(&((struct gb_cuda_gpu *)base)->copier);
    free(base);
}

/* ---- opening ---- */

static int start_driver(enum gb_driver driver, const struct gb_cuda **cuda, struct gb_error *error)
{
    CUresult result;
    int r = gb_cuda_load(driver, cuda, error);

    if (r < 0)
        return r;
    for (int tries = 1;; tries++) {
        result = (*cuda)->cuInit(0);
        if (result != CUDA_ERROR_SYSTEM_NOT_READY || tries == START_TRIES)
            break;
        gb_log(GB_LOG_WARNING, "waiting for the CUDA driver", GB_LOG_NUMBER("try", tries),
               GB_LOG_NUMBER("of", START_TRIES));
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, *cuda, result, "starting the %s driver",
                            gb_driver_names[driver].name);
    return 0;
}

static int attribute(const struct cuda_device *device, CUdevice_attribute which)
{
    int value = 0;

    return device->cuda->cuDeviceGetAttribute(&value, which, device->device) == CUDA_SUCCESS ? value
                                                                                             : 0;
}

static int read_abilities(struct cuda_device *device, struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    size_t granularity = 0;
    CUresult result;

    device->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->device},
    };
    if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        device->properties.allocFlags.gpuDirectRDMACapable = 1;
    device->can_fd =
        attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
        attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    /* Integrated GPUs (Tegra) share events that way, but no memory. */
    device->can_ipc = !attribute(device, CU_DEVICE_ATTRIBUTE_INTEGRATED);
    device->gpu.base.granularity = 2u << 20;
    if (!device->can_fd)
        return 0;
    result = cuda->cuMemGetAllocationGranularity(&granularity, &device->properties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "asking for the granularity of %s",
                            device->gpu.base.id);
    if (granularity > device->gpu.base.granularity)
        device->gpu.base.granularity = granularity;
    return 0;
}

static int describe(struct cuda_device *device, int ordinal, struct gb_error *error)
{
    const struct gb_cuda *cuda = device->cuda;
    CUresult result = cuda->cuDeviceGet(&device->device, ordinal);

    if (result == CUDA_SUCCESS)
        result = gb_cuda_device_id(cuda, device->device, device->gpu.base.id);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetName(device->gpu.base.name, sizeof(device->gpu.base.name) - 1,
                                       device->device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceTotalMem(&device->total, device->device);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "looking at GPU %d", ordinal);
    snprintf(device->gpu.base.alias, sizeof(device->gpu.base.alias), "%s:%d",
             device->gpu.base.ops->kind, ordinal);
    return read_abilities(device, error);
}

static int open_ordinal(const struct gb_cuda *cuda, int ordinal, struct cuda_device **out,
                        struct gb_error *error)
{
    struct cuda_device *device = calloc(1, sizeof(*device));
    int r;

    if (!device)
        return gb_fail_memory(error);
    device->gpu.base.can_block = true;
    device->cuda = cuda;
    device->gpu.base.ops = cuda->driver == GB_HIP ? &gb_device_hip : &gb_device_cuda;
    r = describe(device, ordinal, error);
    if (r == 0 && gb_cuda_copier_init(&device->gpu.copier, cuda, device->device) < 0)
        r = gb_fail_memory(error);
    if (r < 0) {
        free(device);
        return r;
    }
    *out = device;
    return 0;
}

/* A spec behind its kind, "0" of "cuda:0"; NULL: it is of another kind. */
static const char *after_kind(const char *id, const char *kind)
{
    size_t length = strlen(kind);

    return strncmp(id, kind, length) == 0 && id[length] == ':' ? id + length + 1 : NULL;
}

/* Whether a spec means the device: all, its number, or the beginning of its UUID. */
static bool means(const struct gb_device_spec *spec, const struct gb_device *device)
{
    const char *which = after_kind(spec->id, device->ops->kind);

    if (which)
        return strcmp(which, "all") == 0 || strcmp(spec->id, device->alias) == 0;
    return strncmp(spec->id, device->id, strlen(spec->id)) == 0;
}

static bool has(struct gb_device **devices, unsigned count, const char *id)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(devices[i]->id, id) == 0)
            return true;
    return false;
}

/* Appends a device that the spec means, with the budget that it says. */
static int append(const struct gb_device_spec *spec, struct cuda_device *device,
                  struct gb_device **devices, unsigned *count, struct gb_error *error)
{
    if (*count == GB_DEVICES)
        return gb_fail(error, GPUBUF_E_INVALID, "more than %d devices", GB_DEVICES);
    if (has(devices, *count, device->gpu.base.id))
        return gb_fail(error, GPUBUF_E_INVALID, "%s is given twice", device->gpu.base.id);
    if (gb_device_spec_capacity(spec, device->total, &device->gpu.base.capacity, error) < 0)
        return GPUBUF_E_INVALID;
    devices[(*count)++] = &device->gpu.base;
    return 0;
}

static bool is_number_or_all(const char *which)
{
    return which && *which &&
           (strcmp(which, "all") == 0 || strspn(which, "0123456789") == strlen(which));
}

static bool cuda_is_meant(const char *id)
{
    return is_number_or_all(after_kind(id, "cuda")) || strncmp(id, "GPU-", 4) == 0 ||
           strncmp(id, "MIG-", 4) == 0;
}

static bool hip_is_meant(const char *id)
{
    return is_number_or_all(after_kind(id, "hip")) || strncmp(id, "HIP-", 4) == 0;
}

/* Starts the driver, waiting for one that is not ready yet. */
static int cuda_open(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                     struct gb_error *error)
{
    const struct gb_cuda *cuda;
    int gpus = 0, r = start_driver(gb_driver_of(spec->id), &cuda, error);
    unsigned before = *count;
    CUresult result;

    if (r < 0)
        return r;
    result = cuda->cuDeviceGetCount(&gpus);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "counting the GPUs");
    for (int ordinal = 0; ordinal < gpus; ordinal++) {
        struct cuda_device *device = NULL;
        bool meant;

        r = open_ordinal(cuda, ordinal, &device, error);
        if (r < 0)
            return r;
        meant = means(spec, &device->gpu.base);
        if (meant)
            r = append(spec, device, devices, count, error);
        if (!meant || r < 0)
            cuda_end(&device->gpu.base);
        if (r < 0)
            return r;
    }
    if (*count > before + 1 && !strstr(spec->id, ":all"))
        return gb_fail(error, GPUBUF_E_INVALID, "%u GPUs begin like that; give more of the UUID",
                       *count - before);
    if (*count == before)
        return gb_fail(error, GPUBUF_E_INVALID, "the driver shows no such GPU among %d", gpus);
    return 0;
}

#define GPU_OPS(kind_name, function)                                                               \
    {                                                                                              \
        .kind = (kind_name), .numbered = true, .is_meant = (function), .open = cuda_open,          \
        .can_share = cuda_can_share, .create = cuda_create, .adopt = cuda_adopt,                   \
        .destroy = cuda_destroy, .restore = cuda_restore, .copy = gb_cuda_copy,                    \
        .finish_copies = gb_cuda_finish_copies, .pin = gb_cuda_pin, .unpin = gb_cuda_unpin,        \
        .end = cuda_end,                                                                           \
    }

const struct gb_device_ops gb_device_cuda = GPU_OPS("cuda", cuda_is_meant);
const struct gb_device_ops gb_device_hip = GPU_OPS("hip", hip_is_meant);
