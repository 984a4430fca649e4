#include "client/lib/objects/copy.h"

#include <inttypes.h>
#include <string.h>

#include "client/lib/memory/gpu_copy.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/progress.h"
#include "client/lib/wire/report.h"

int gpubuf_device_ordinal(const struct gpubuf_object *object)
{
    struct gb_gpu *gpu;
    struct gb_error ignored;

    if (!object || gb_client_lease_gpu(object->lease, &gpu, &ignored) < 0 || !gpu)
        return -1;
    return gpu->ordinal;
}

/* Finds the stretch of a buffer that is to be copied. */
static int locate(const struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                  const void *data, uint64_t bytes, char **place)
{
    struct gpubuf_memory memory;
    int r = gpubuf_memory(object, which, &memory);

    if (r < 0)
        return r;
    const struct gpubuf_client *client = object->lease->client;
    if (r > 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "%s has no such buffer",
                              object->lease->name);
    if (offset > memory.bytes || bytes > memory.bytes - offset)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "bytes %" PRIu64 " to %" PRIu64 " + %" PRIu64
                              " go past the end: the buffer has %" PRIu64,
                              offset, offset, bytes, memory.bytes);
    if (bytes > 0 && !data)
        return gb_report_text(client, GPUBUF_E_INVALID, "the data is NULL");
    *place = (char *)memory.pointer + offset;
    return 0;
}

/* Copies by the object's GPU, or else by the data's, or on the host. */
static int copy(const struct gb_client_lease *lease, char *to, const char *from, const void *data,
                uint64_t bytes, void *stream)
{
    struct gb_error error;
    struct gb_gpu *gpu;
    int r = gb_client_lease_gpu(lease, &gpu, &error);

    if (r == 0 && !gpu)
        gpu = gb_gpu_of_pointer(data);
    if (r == 0 && gpu && !stream)
        r = gb_gpu_finish_other(gpu, data, &error);
    if (r < 0)
        return gb_report(lease->client, &error);
    uint64_t most = !gpu ? GB_PROGRESS_PIECE : stream ? UINT64_MAX : GB_PROGRESS_GPU_PIECE;
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = gb_progress_piece(lease->client, bytes - done, most);
        if (!gpu)
            memcpy(to + done, from + done, (size_t)count);
        else if (gb_gpu_copy(gpu, to + done, from + done, count, stream, &error) < 0 ||
                 (!stream && gb_gpu_finish(gpu, NULL, &error) < 0))
            return gb_report(lease->client, &error);
        r = gb_progress(lease->client, count);
        if (r < 0)
            return r;
    }
    return 0;
}

int gpubuf_read(const struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                void *data, uint64_t bytes, void *stream)
{
    char *from;
    int r = locate(object, which, offset, data, bytes, &from);

    if (r < 0 || bytes == 0)
        return r;
    return copy(object->lease, data, from, data, bytes, stream);
}

int gb_writable(const struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                uint64_t bytes, char **place)
{
    int r = locate(object, which, offset, "", bytes, place);

    if (r < 0)
        return r;
    if (atomic_load(&object->lease->state) == GB_LEASE_STALE)
        return gb_report_text(object->lease->client, GPUBUF_E_STALE,
                              "%s was lost: the connection broke before it was sealed",
                              object->lease->name);
    if (!gb_client_lease_is_writable(object->lease))
        return gb_report_text(object->lease->client, GPUBUF_E_BUSY,
                              "%s is sealed, or about to be, and cannot be written",
                              object->lease->name);
    return 0;
}

int gpubuf_write(struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                 const void *data, uint64_t bytes, void *stream)
{
    char *to;
    int r = locate(object, which, offset, data, bytes, &to);

    if (r == 0)
        r = gb_writable(object, which, offset, bytes, &to);
    return r < 0 || bytes == 0 ? r : copy(object->lease, to, data, data, bytes, stream);
}

int gpubuf_pin_memory(struct gpubuf_object *object)
{
    struct gb_error error;
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = object->lease;
    if (!gb_is_host(lease->device))
        return gb_report_text(lease->client, GPUBUF_E_INVALID, "%s is on a GPU already",
                              lease->name);
    r = gb_client_lease_pin(lease, &error);
    return r < 0 ? gb_report(lease->client, &error) : 0;
}

int gb_finish_writing(const struct gb_client_lease *lease)
{
    struct gb_error error;
    struct gb_gpu *gpu;
    int r = gb_client_lease_gpu(lease, &gpu, &error);

    if (r < 0 || !gpu)
        return r < 0 ? gb_report(lease->client, &error) : 0;
    r = gb_gpu_finish(gpu, NULL, &error);
    if (r == 0)
        return 0;
    /* A copy whose memory is unmapped breaks the GPU's context: after any failure, wait if
       possible. */
    (void)gb_gpu_finish(gpu, NULL, NULL);
    return gb_report(lease->client, &error);
}
