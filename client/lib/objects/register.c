/*
 * Sharing device memory of the program's, in one part or several. The driver says which allocation
 * a pointer lies in (it may be that of CuPy's, RMM's or PyTorch's pool). The allocation is shared
 * as a whole, and the layout's offsets are moved to count from its start.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/memory/gpu.h"
#include "client/lib/memory/gpu_own.h"
#include "client/lib/objects/create_options.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"
#include "proto/layout/layout.h"

/* ---- what is behind a pointer ---- */

/* Memory to register: the allocation that the program's part lies in. */
struct region {
    struct gb_gpu *gpu;
    CUdeviceptr pointer, base;
    uint64_t bytes;
    int fd; /* -1: a legacy handle */
    unsigned char handle[GB_IPC_BYTES];
};

/* As the driver writes them: booleans are four bytes wide, and the bytes that a narrower value
   leaves are zero. */
struct pointer_facts {
    uint64_t type, managed, legacy, exportable, pool, ordinal;
};

static int read_facts(const struct gb_cuda *cuda, CUdeviceptr pointer, struct pointer_facts *facts,
                      struct gb_error *error)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    };
    void *values[] = {&facts->type,       &facts->managed, &facts->legacy,
                      &facts->exportable, &facts->pool,    &facts->ordinal};

    *facts = (struct pointer_facts){0};
    CUresult result = cuda->cuPointerGetAttributes(sizeof(values) / sizeof(values[0]), attributes,
                                                   values, pointer);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "asking what the pointer 0x%llx is", pointer);
    return 0;
}

#define PUT_INSTEAD "publish a copy with gpubuf_put_bytes or gpubuf_put_array"

static int check_facts(const struct pointer_facts *facts, struct gb_error *error)
{
    if (facts->managed)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "managed memory cannot be shared; " PUT_INSTEAD);
    if (facts->type != CU_MEMORYTYPE_DEVICE)
        return gb_fail(error, GPUBUF_E_INVALID, "the pointer is not to memory of a GPU; %s",
                       PUT_INSTEAD);
    if (facts->pool)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "memory of a stream-ordered pool (cudaMallocAsync) cannot be shared; "
                       "allocate it with cudaMalloc, or " PUT_INSTEAD);
    if (!facts->legacy && !(facts->exportable & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "this memory was not made to be exported (by cuMemCreate, without a "
                       "descriptor as handle type, or it is another process's); " PUT_INSTEAD);
    return 0;
}

static int export_fd(struct region *region, struct gb_error *error)
{
    const struct gb_cuda *cuda = region->gpu->cuda;
    CUmemGenericAllocationHandle allocation;
    CUresult result =
        cuda->cuMemRetainAllocationHandle(&allocation, (void *)(uintptr_t)region->pointer);

    if (result == CUDA_SUCCESS) {
        result = cuda->cuMemExportToShareableHandle(&region->fd, allocation,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        (void)cuda->cuMemRelease(allocation);
    }
    if (result == CUDA_SUCCESS)
        return 0;
    region->fd = -1;
    return gb_cuda_fail(error, cuda, result, "exporting memory on %s", region->gpu->id);
}

/* To be called in the GPU's context. */
static int read_region(struct region *region, uint64_t bytes, bool legacy, struct gb_error *error)
{
    const struct gb_cuda *cuda = region->gpu->cuda;
    size_t size = 0;
    CUresult result = cuda->cuMemGetAddressRange(&region->base, &size, region->pointer);

    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "looking for the allocation of 0x%llx",
                            region->pointer);
    region->bytes = size;
    uint64_t offset = region->pointer - region->base;
    if (offset > size || bytes > size - offset)
        return gb_fail(error, legacy ? GPUBUF_E_INVALID : GPUBUF_E_UNSUPPORTED,
                       "the %" PRIu64 " bytes from the pointer on do not lie in one allocation, "
                       "which has %zu from there (pools that grow in place, such as PyTorch's "
                       "expandable segments, are made of many); " PUT_INSTEAD,
                       bytes, offset > size ? 0 : size - (size_t)offset);
    if (!legacy)
        return export_fd(region, error);
    CUipcMemHandle handle;
    result = cuda->cuIpcGetMemHandle(&handle, region->base);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "making a handle for memory on %s",
                            region->gpu->id);
    memcpy(region->handle, &handle, sizeof(region->handle));
    return 0;
}

static int find_region(const void *pointer, uint64_t bytes, struct region *region,
                       struct gb_error *error)
{
    struct gb_gpu *any = gb_gpu_of_pointer(pointer);
    struct pointer_facts facts;
    int r = 0;

    *region = (struct region){.pointer = (CUdeviceptr)(uintptr_t)pointer, .fd = -1};
    if (!any)
        r = gb_gpu_at(gb_gpu_driver(), 0, &any, error);
    if (r == 0)
        r = read_facts(any->cuda, region->pointer, &facts, error);
    if (r == 0)
        r = check_facts(&facts, error);
    if (r == 0)
        r = gb_gpu_at(any->cuda->driver, (int)facts.ordinal, &region->gpu, error);
    if (r == 0)
        r = gb_gpu_enter(region->gpu, error);
    if (r < 0)
        return r;
    r = read_region(region, bytes, facts.legacy, error);
    gb_gpu_leave(region->gpu);
    return r;
}

/* ---- the request ---- */

#define REGIONS_MAX GB_LIMIT(fds)

/* A registration: the program's parts, and the allocations that these lie in, each once. */
struct registration {
    const char *name;
    const struct gpubuf_part *parts;
    size_t part_count;
    unsigned *regions_of; /* of each part */
    struct region regions[REGIONS_MAX];
    unsigned region_count;
    struct gb_layout layout;
    struct gpubuf_create_options options;
};

static void write_handle(struct gb_writer *writer, const struct region *region, unsigned fd)
{
    enum gb_handle_kind kind = region->fd >= 0 ? GB_HANDLE_CUDA_FD : GB_HANDLE_CUDA_IPC;

    gb_write_format(writer, "{\"kind\":\"%s\",", gb_handle_kind_name(kind, region->gpu->id));
    if (region->fd >= 0) {
        gb_write_format(writer, "\"fd\":%u", fd);
    } else {
        GB_WRITE_LITERAL(writer, "\"ipc\":");
        gb_write_base64(writer, region->handle, sizeof(region->handle));
    }
    gb_write_format(writer, ",\"bytes\":%" PRIu64 ",\"device\":\"%s\"}", region->bytes,
                    region->gpu->id);
}

static void write_register(struct gb_writer *writer, const void *arg)
{
    const struct registration *registration = arg;

    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, registration->name);
    GB_WRITE_LITERAL(writer, ",\"layout\":");
    gb_layout_write(writer, &registration->layout, GB_LAYOUT_REGISTER);
    GB_WRITE_LITERAL(writer, ",\"handles\":[");
    for (unsigned i = 0; i < registration->region_count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        write_handle(writer, &registration->regions[i], i);
    }
    gb_write_char(writer, ']');
    gb_write_create_options(writer, &registration->options);
    gb_write_char(writer, '}');
}

/* Makes a buffer's offset, which counts from its part, count from the start of the allocation. */
static int move_buffer(struct gb_buffer *buffer, void *arg)
{
    const struct registration *registration = arg;
    size_t part = (size_t)buffer->segment;
    const struct region *region = &registration->regions[registration->regions_of[part]];

    if (buffer->bytes > 0)
        buffer->offset += (CUdeviceptr)(uintptr_t)registration->parts[part].pointer - region->base;
    buffer->segment = registration->regions_of[part];
    return 0;
}

/* Reads the layout, whose buffers count from the parts' pointers, and checks that they lie within
   the parts. */
static int read_layout(const char *text, struct registration *registration, struct gb_pool *pool,
                       struct gb_error *error)
{
    struct gb_json value;
    struct gb_path path = {.key = "layout_json"};

    if (!text)
        return gb_fail(error, GPUBUF_E_INVALID, "layout_json is NULL");
    int r = gb_json_check(text, strlen(text), pool, &value, error);
    if (r == GPUBUF_E_PARSE) {
        struct gb_error cause = *error;
        return gb_fail(error, GPUBUF_E_INVALID, "layout_json: %s", cause.message);
    }
    if (r < 0)
        return r;
    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_INVALID, "layout_json: expected an object");
    r = gb_layout_read(value, GB_LAYOUT_REGISTER, &path, pool, &registration->layout, error);
    if (r < 0)
        return r;
    uint64_t *bytes = gb_pool_alloc(pool, registration->part_count * sizeof(*bytes));
    if (!bytes)
        return gb_fail_memory(error);
    for (size_t i = 0; i < registration->part_count; i++)
        bytes[i] = registration->parts[i].bytes;
    return gb_layout_check_handles(&registration->layout, bytes, registration->part_count, &path,
                                   error);
}

static void end_region(struct region *region)
{
    if (region->fd >= 0)
        close(region->fd);
}

/* Finds the allocation of one part, and checks that it is of the same GPU and kind as those
   before. */
static int add_region(struct registration *registration, size_t part, struct gb_error *error)
{
    struct region region;
    struct region *regions = registration->regions;
    int r = find_region(registration->parts[part].pointer, registration->parts[part].bytes, &region,
                        error);

    if (r < 0)
        return r;
    unsigned count = registration->region_count, i = 0;
    while (i < count && regions[i].base != region.base)
        i++;
    registration->regions_of[part] = i;
    if (i < count) {
        end_region(&region);
        return 0;
    }
    if (count > 0 && region.gpu != regions[0].gpu)
        r = gb_fail(error, GPUBUF_E_INVALID, "part %zu lies on %s, those before it on %s", part,
                    region.gpu->id, regions[0].gpu->id);
    else if (count > 0 && (region.fd >= 0) != (regions[0].fd >= 0))
        r = gb_fail(error, GPUBUF_E_UNSUPPORTED,
                    "part %zu is memory of another kind (cuMemCreate or cudaMalloc) than those "
                    "before it",
                    part);
    else if (count == REGIONS_MAX)
        r = gb_fail(error, GPUBUF_E_LIMIT,
                    "the parts lie in more than %u allocations; take them from one pool, "
                    "or " PUT_INSTEAD,
                    (unsigned)REGIONS_MAX);
    if (r < 0) {
        end_region(&region);
        return r;
    }
    regions[registration->region_count++] = region;
    return 0;
}

static int check_arguments(const struct gpubuf_client *client,
                           const struct registration *registration)
{
    const char *name = registration->name;
    struct gb_path path = {.key = "name"};
    struct gb_error error;

    if (gb_name_check(name ? name : "", name ? strlen(name) : 0, &path, &error) < 0)
        return gb_report(client, &error);
    for (size_t i = 0; i < registration->part_count; i++) {
        if (!registration->parts[i].pointer || registration->parts[i].bytes == 0)
            return gb_report_text(client, GPUBUF_E_INVALID, "part %zu has no memory", i);
    }
    if (registration->part_count == 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "there is nothing to register");
    return 0;
}

/* Notes memory that is shared by legacy handle, since this process cannot open its own handle. */
static int note_regions(const struct gpubuf_client *client, const struct registration *registration)
{
    for (unsigned i = 0; i < registration->region_count; i++) {
        const struct region *region = &registration->regions[i];
        void *base = (void *)(uintptr_t)region->base;
        if (region->fd < 0 &&
            gb_gpu_own_note(region->handle, client->serial, base, region->bytes) < 0)
            return gb_report_memory(client);
    }
    return 0;
}

/* The callback of an asynchronous call. */
struct after {
    gpubuf_call_cb callback;
    void *arg;
    uint64_t *request;
};

/* Calls `register`. Waits for the answer if `after` is NULL. */
static int send_registration(struct gpubuf_client *client, struct registration *registration,
                             const struct after *after)
{
    int fds[REGIONS_MAX];
    unsigned fd_count = 0;

    for (unsigned i = 0; i < registration->region_count; i++) {
        if (registration->regions[i].fd >= 0)
            fds[fd_count++] = registration->regions[i].fd;
    }
    registration->options.wait_ms = 0;  /* nothing is allocated, so there is nothing to wait for */
    registration->options.share = NULL; /* the memory is of one kind already */
    if (!registration->options.device)
        registration->options.device = registration->regions[0].gpu->id;
    int r = note_regions(client, registration);
    if (r < 0)
        return r;
    if (after)
        return gb_call_async_with_fds(client, "register", write_register, registration, fds,
                                      fd_count, after->callback, after->arg, after->request);
    return gb_call_with_fds(client, "register", write_register, registration, fds, fd_count,
                            gb_answer_timeout(client, 0), NULL);
}

static int register_parts(struct gpubuf_client *client, struct registration *registration,
                          const char *layout_json, const struct gpubuf_create_options *given,
                          const struct after *after)
{
    struct gb_pool pool = {0};
    struct gb_error error;
    int r = check_arguments(client, registration);

    if (r == 0)
        r = gb_read_create_options(client, given, &registration->options);
    if (r < 0)
        return r;

    registration->regions_of = calloc(registration->part_count, sizeof(*registration->regions_of));
    if (!registration->regions_of)
        return gb_report_memory(client);
    r = read_layout(layout_json, registration, &pool, &error);
    for (size_t i = 0; r == 0 && i < registration->part_count; i++)
        r = add_region(registration, i, &error);
    if (r < 0) {
        (void)gb_report(client, &error);
    } else {
        (void)gb_layout_each(&registration->layout, move_buffer, registration);
        r = send_registration(client, registration, after);
    }
    for (unsigned i = 0; i < registration->region_count; i++)
        end_region(&registration->regions[i]);
    free(registration->regions_of);
    gb_pool_end(&pool);
    return r;
}

int gpubuf_register_parts(struct gpubuf_client *client, const char *name,
                          const struct gpubuf_part *parts, size_t count, const char *layout_json,
                          const struct gpubuf_create_options *options)
{
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    gb_leave(client); /* no lock of it is held from here on */
    struct registration registration = {.name = name, .parts = parts, .part_count = count};
    return register_parts(client, &registration, layout_json, options, NULL);
}

int gpubuf_register_parts_async(struct gpubuf_client *client, const char *name,
                                const struct gpubuf_part *parts, size_t count,
                                const char *layout_json,
                                const struct gpubuf_create_options *options,
                                gpubuf_call_cb callback, void *arg, uint64_t *request)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    gb_leave(client);
    struct registration registration = {.name = name, .parts = parts, .part_count = count};
    const struct after after = {callback, arg, request};
    return register_parts(client, &registration, layout_json, options, &after);
}

int gpubuf_register_device(struct gpubuf_client *client, const char *name, const void *pointer,
                           uint64_t bytes, const char *layout_json,
                           const struct gpubuf_create_options *options)
{
    struct gpubuf_part part = {pointer, bytes};

    return gpubuf_register_parts(client, name, &part, 1, layout_json, options);
}
