#include "put.h"

#include <inttypes.h>
#include <string.h>

int gb_put_read(struct gb_put *put, void *buffer, uint64_t size, uint64_t *got)
{
    size_t held = put->start_length < size ? put->start_length : (size_t)size;

    if (held > 0) {
        memcpy(buffer, put->start, held);
        memmove(put->start, put->start + held, put->start_length - held);
        put->start_length -= held;
    }
    int code = gb_input_read(&put->input, (char *)buffer + held, size - held, got, &put->error);
    *got += held;
    return code;
}

int gb_put_failure(struct gb_put *put)
{
    if (put->error.code == GPUBUF_E_SYSTEM) /* names the file itself */
        return gb_cli_tell(&put->error);
    return gb_cli_fail(GB_STATUS_FAILED, "%s: %s", put->input.name, put->error.message);
}

int gb_put_create(struct gb_put *put, const struct gpubuf_layout_spec *layout)
{
    int status = gb_cli_connect(put->cli);
    if (status != GB_STATUS_OK)
        return status;
    int code = gpubuf_create(put->cli->client, put->name, layout, &put->create, &put->object);
    return code == 0 ? GB_STATUS_OK : gb_cli_error(put->cli, code, "cannot create %s", put->name);
}

int gb_put_memory(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which,
                  void **data)
{
    struct gpubuf_memory memory = {0};

    int code = gpubuf_memory(object, which, &memory);
    if (code < 0)
        return gb_cli_error(put->cli, code, "cannot write %s", put->name);
    if (strcmp(gpubuf_device(object), "host") != 0)
        return gb_cli_fail(GB_STATUS_FAILED,
                           "cannot write %s: it lies on the device %s, and only memory of the host "
                           "can be filled from a file; use --device host",
                           put->name, gpubuf_device(object));
    *data = memory.pointer;
    return GB_STATUS_OK;
}

int gb_put_create_array(struct gb_put *put, const struct gb_dtype *dtype, unsigned ndim,
                        const uint64_t *shape, void **data)
{
    char text[64];
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_ARRAY,
        .dtype = text,
        .ndim = ndim,
        .shape = shape,
    };

    gb_dtype_format(dtype, text, sizeof(text));
    if (put->kind == GB_PUT_COLUMN) {
        if (ndim != 1)
            return gb_cli_fail(GB_STATUS_FAILED,
                               "%s: a column has one axis, but the array has %u; leave --kind out",
                               put->input.name, ndim);
        layout = (struct gpubuf_layout_spec){
            .kind = GPUBUF_KIND_COLUMN,
            .column = {.dtype = text, .length = shape[0]},
        };
    }
    int status = gb_put_create(put, &layout);
    return status != GB_STATUS_OK ? status : gb_put_memory(put, put->object, GPUBUF_DATA, data);
}

int gb_put_wrong_length(struct gb_put *put, uint64_t expected, uint64_t got, bool more)
{
    if (more)
        return gb_cli_fail(GB_STATUS_FAILED,
                           "%s: has bytes after the %" PRIu64 " that its dtype and shape make up",
                           put->input.name, expected);
    return gb_cli_fail(GB_STATUS_FAILED,
                       "%s: is cut short: its dtype and shape make up %" PRIu64
                       " bytes of data, but there are %" PRIu64,
                       put->input.name, expected, got);
}
