/* create + copy + seal + release in one call. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/gpu_copy.h"
#include "client/lib/objects/copy.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/put.h"
#include "client/lib/objects/seal.h"
#include "client/lib/wire/report.h"

/* The source of a put: memory of the host, or of a GPU. */
struct source {
    struct gb_gpu *gpu; /* NULL: of the host */
    char *packed;       /* gathers short runs for one copy to a GPU; NULL: not needed */
    uint64_t at, held;  /* their place in the object, and their bytes */
};

#define PACKED_BYTES (UINT64_C(1) << 20)

/* Waits for work on the default stream of the data's GPU, which may still write the data. */
static int source_begin(struct source *source, const struct gpubuf_object *object, const void *data)
{
    struct gb_error error;
    struct gb_gpu *gpu;

    *source = (struct source){.gpu = gb_gpu_of_pointer(data)};
    if (!source->gpu || gb_is_host(object->lease->device))
        return 0;
    int r = gb_client_lease_gpu(object->lease, &gpu, &error);
    if (r == 0)
        r = gb_gpu_finish_other(gpu, data, &error);
    return r < 0 ? gb_report(object->lease->client, &error) : 0;
}

/* Copies from a GPU to an object on the host, by the data's GPU. */
static int fetch(const struct gpubuf_object *object, const struct source *source, uint64_t to,
                 const void *from, uint64_t bytes)
{
    const struct gb_client_lease *lease = object->lease;
    const struct gb_buffer *buffer = &object->column->data;
    struct gb_error error;

    if (to > buffer->bytes || bytes > buffer->bytes - to)
        return gb_report_text(lease->client, GPUBUF_E_PROTOCOL,
                              "the daemon gave a smaller buffer than it was asked for");
    char *address = gb_buffer_address(lease, buffer);
    if (gb_gpu_copy(source->gpu, address + to, from, bytes, NULL, &error) < 0)
        return gb_report(lease->client, &error);
    return 0;
}

static int write_run(const struct gpubuf_object *object, const struct source *source, uint64_t to,
                     const void *from, uint64_t bytes)
{
    if (source->gpu && gb_is_host(object->lease->device))
        return fetch(object, source, to, from, bytes);
    return gb_buffer_write(object->lease, &object->column->data, to, from, bytes);
}

/* Seals what was written, or aborts it. Returns `r` if that is a failure already. */
static int finish(struct gpubuf_object *object, const struct source *source,
                  const struct gpubuf_create_options *options, int r)
{
    struct gb_error error;
    int fetched = 0;

    if (source->gpu && gb_is_host(object->lease->device) &&
        gb_gpu_finish(source->gpu, NULL, &error) < 0)
        fetched = gb_report(object->lease->client, &error);
    free(source->packed);
    return gb_end_put(object, options, r < 0 ? r : fetched);
}

int gpubuf_put_bytes(struct gpubuf_client *client, const char *name, const void *data,
                     uint64_t bytes, const struct gpubuf_create_options *options)
{
    if (bytes && !data)
        return gb_report_text(client, GPUBUF_E_INVALID, "the data is NULL");
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    struct gpubuf_object *object;
    int r = gpubuf_create(client, name, &layout, options, &object);
    if (r < 0)
        return r;
    struct source source;
    r = source_begin(&source, object, data);
    if (r == 0 && bytes > 0)
        r = write_run(object, &source, 0, data, bytes);
    return finish(object, &source, options, r);
}

/* ---- arrays ---- */

/* A source whose innermost dense axes have been merged into one run of bytes. */
struct strided {
    unsigned ndim; /* axes left; 0: a single run */
    uint64_t shape[GB_LIMIT(ndim)];
    int64_t strides[GB_LIMIT(ndim)];
    uint64_t run; /* bytes */
};

/* False if a size overflows. */
static bool collapse(const struct gpubuf_object *object, const int64_t *strides,
                     struct strided *source)
{
    const struct gb_dtype *dtype = &object->column->dtype;
    uint64_t *shape = source->shape; /* the extents of merged axes are not used */
    unsigned axis = object->ndim;

    for (unsigned i = 0; i < axis; i++)
        shape[i] = gb_dtype_items(dtype, object->shape[i], i + 1 == axis);
    source->run = gb_dtype_item(dtype);
    while (axis > 0 &&
           (!strides || shape[axis - 1] == 1 || strides[axis - 1] == (int64_t)source->run)) {
        axis--;
        if (__builtin_mul_overflow(source->run, shape[axis], &source->run) ||
            source->run > INT64_MAX)
            return false;
    }
    source->ndim = axis;
    if (axis > 0)
        memcpy(source->strides, strides, axis * sizeof(*strides));
    return true;
}

static int flush_packed(const struct gpubuf_object *object, struct source *source)
{
    uint64_t bytes = source->held;

    source->held = 0;
    return bytes ? write_run(object, source, source->at, source->packed, bytes) : 0;
}

/* Copies the next run, which follows the last one without a gap. Each copy to a GPU has a fixed
   cost, so short runs from the host are packed first. */
static int copy_run(const struct gpubuf_object *object, struct source *source, uint64_t to,
                    const char *from, uint64_t bytes)
{
    if (!source->packed || bytes > PACKED_BYTES)
        return write_run(object, source, to, from, bytes);
    if (bytes > PACKED_BYTES - source->held) {
        int r = flush_packed(object, source);
        if (r < 0)
            return r;
    }
    if (source->held == 0)
        source->at = to;
    memcpy(source->packed + source->held, from, bytes);
    source->held += bytes;
    return 0;
}

/* Copies all runs in C order. */
static int copy_runs(const struct gpubuf_object *object, const struct strided *source,
                     struct source *data, const char *from)
{
    uint64_t index[GB_LIMIT(ndim)] = {0}, to = 0;

    for (unsigned i = 0; i < object->ndim; i++) {
        if (object->shape[i] == 0)
            return 0;
    }
    for (;;) {
        int r = copy_run(object, data, to, from, source->run);
        if (r < 0)
            return r;
        to += source->run;
        unsigned axis = source->ndim;
        for (;; axis--) { /* the next index, the last axis first */
            if (axis == 0)
                return flush_packed(object, data);
            from += source->strides[axis - 1];
            if (++index[axis - 1] < source->shape[axis - 1])
                break;
            from -= source->strides[axis - 1] * (int64_t)source->shape[axis - 1];
            index[axis - 1] = 0;
        }
    }
}

static int write_array(const struct gpubuf_object *object, struct source *memory,
                       const int64_t *strides, const void *data)
{
    struct gpubuf_client *client = object->lease->client;
    struct strided source;

    if (object->extent && !data)
        return gb_report_text(client, GPUBUF_E_INVALID, "the data is NULL");
    if (!collapse(object, strides, &source))
        return gb_report_text(client, GPUBUF_E_PROTOCOL, "the daemon gave an impossible shape");
    if (source.ndim > 0 && source.run < PACKED_BYTES && !memory->gpu &&
        !gb_is_host(object->lease->device) && !(memory->packed = malloc(PACKED_BYTES)))
        return gb_report_memory(client);
    return copy_runs(object, &source, memory, data);
}

int gb_array_write(const struct gpubuf_object *object, const int64_t *strides, const void *data)
{
    struct source memory;
    int r = source_begin(&memory, object, data);

    if (r == 0)
        r = write_array(object, &memory, strides, data);
    free(memory.packed);
    return r;
}

int gpubuf_put_array(struct gpubuf_client *client, const char *name, const char *dtype,
                     unsigned ndim, const uint64_t *shape, const int64_t *strides, const void *data,
                     const struct gpubuf_create_options *options)
{
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_ARRAY,
        .dtype = dtype,
        .ndim = ndim,
        .shape = shape,
    };
    struct gpubuf_object *object;
    int r = gpubuf_create(client, name, &layout, options, &object);

    if (r < 0)
        return r;
    struct source memory;
    r = source_begin(&memory, object, data);
    if (r == 0)
        r = write_array(object, &memory, strides, data);
    return finish(object, &memory, options, r);
}
