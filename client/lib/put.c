/* create + copy + seal + release in one call. */
#include <inttypes.h>
#include <string.h>

#include "lease.h"

/* Seals what was written, or aborts it. Returns `r` if that is a failure already. */
static int finish(struct gpubuf_object *object, int r)
{
    if (r == 0)
        r = gb_seal_and_release(object);
    gpubuf_release(object);
    return r;
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
    return finish(object, gb_buffer_write(object->lease, &object->column->data, 0, data, bytes));
}

/* ---- arrays ---- */

/* A source whose axes that lie densely behind one another have become one run of bytes. */
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
    const uint64_t *shape = object->shape;
    unsigned axis = object->ndim;
    source->run = gb_dtype_bits(&object->column->dtype) / 8;
    while (axis > 0 &&
           (!strides || shape[axis - 1] == 1 || strides[axis - 1] == (int64_t)source->run)) {
        axis--;
        if (__builtin_mul_overflow(source->run, shape[axis], &source->run) ||
            source->run > INT64_MAX)
            return false;
    }
    source->ndim = axis;
    if (axis > 0) {
        memcpy(source->shape, shape, axis * sizeof(*shape));
        memcpy(source->strides, strides, axis * sizeof(*strides));
    }
    return true;
}

/* Copies all runs in C order. */
static int copy_runs(const struct gpubuf_object *object, const struct strided *source,
                     const char *from)
{
    uint64_t index[GB_LIMIT(ndim)] = {0}, to = 0;
    for (unsigned i = 0; i < object->ndim; i++) {
        if (object->shape[i] == 0)
            return 0;
    }
    for (;;) {
        int r = gb_buffer_write(object->lease, &object->column->data, to, from, source->run);
        if (r < 0)
            return r;
        to += source->run;
        unsigned axis = source->ndim;
        for (;; axis--) { /* the next index, the last axis first */
            if (axis == 0)
                return 0;
            from += source->strides[axis - 1];
            if (++index[axis - 1] < source->shape[axis - 1])
                break;
            from -= source->strides[axis - 1] * (int64_t)source->shape[axis - 1];
            index[axis - 1] = 0;
        }
    }
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
    struct strided source;
    if (object->extent && !data)
        r = gb_report_text(client, GPUBUF_E_INVALID, "the data is NULL");
    else if (!collapse(object, strides, &source))
        r = gb_report_text(client, GPUBUF_E_PROTOCOL, "the daemon gave an impossible shape");
    else
        r = copy_runs(object, &source, data);
    return finish(object, r);
}
