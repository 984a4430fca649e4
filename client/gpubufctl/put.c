#include "put.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "format.h"
#include "json_print.h"
#include "proto/handle.h"

int gb_put_check_name(const struct gb_put *put, const char *file)
{
    static const char *const others[] = {
        ".orc", ".h5", ".xlsx", ".pt", ".pkl",
    };
    const char *end = strrchr(file, '.');

    if (end && strcasecmp(end, ".json") == 0)
        return gb_cli_usage(put->cli,
                            "%s: gpubufctl reads JSON lines (.jsonl): jq -c '.[]' makes these of "
                            "an array of objects; --format raw takes the file's bytes as they are",
                            put->input.name);
    for (size_t i = 0; end && i < sizeof(others) / sizeof(*others); i++)
        if (strcasecmp(end, others[i]) == 0)
            return gb_cli_usage(put->cli,
                                "%s: gpubufctl does not read %s files, though Python can read one "
                                "and put it; --format raw takes its bytes as they are",
                                put->input.name, others[i]);
    if (end && !strchr(end, '/') && strcasecmp(end, ".bin") != 0 && strcasecmp(end, ".raw") != 0)
        fprintf(stderr,
                "gpubufctl: %s: no format that gpubufctl knows, so its bytes are stored as they "
                "are (--format raw says so)\n",
                put->input.name);
    return GB_STATUS_OK;
}

int gb_put_bound(struct gb_put *put, bool text)
{
    enum { TEXT_TIMES = 16 }; /* text takes more bytes than its values, but not without end */
    char size[GB_FORMAT_MAX];
    cJSON *stats;

    int status = gb_cli_ask(put->cli, "stats", NULL, &stats);
    if (status != GB_STATUS_OK)
        return status;
    const cJSON *device;
    uint64_t most = 0;
    cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(stats, "devices"))
    {
        const char *id = gb_cjson_string_of(device, "id", "");
        uint64_t capacity = (uint64_t)gb_cjson_int_of(device, "capacity", 0);
        bool asked = put->create.device && strcmp(put->create.device, id) == 0;
        if (!asked && capacity <= most)
            continue;
        most = capacity;
        gb_format_size(capacity, size, sizeof(size));
        (void)snprintf(put->where, sizeof(put->where), "%s, which has %s", id, size);
        if (asked)
            break;
    }
    cJSON_Delete(stats);
    put->most = text ? most * TEXT_TIMES : most;
    return GB_STATUS_OK;
}

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
    if (code == 0 && put->most && put->input.done > put->most)
        return gb_fail(&put->error, GPUBUF_E_NO_SPACE, "it is larger than %s", put->where);
    return code;
}

int gb_put_stream(struct gb_put *put, uint64_t at, uint64_t bytes)
{
    struct gb_input *input = &put->input;
    off_t position = lseek(input->fd, 0, SEEK_CUR) - (off_t)put->start_length;
    struct gpubuf_file_range range = {input->fd, (uint64_t)position, bytes, at};

    int code = gb_file_fill(put->object, GPUBUF_DATA, &range, input->progress, input->done);
    if (code == GPUBUF_E_INVALID || code == GPUBUF_E_SYSTEM) /* names the file itself */
        return gb_cli_fail(GB_STATUS_FAILED, "%s", gpubuf_errmsg(put->cli->client));
    if (code < 0)
        return gb_cli_error(put->cli, code, "cannot write %s", put->name);
    input->done += bytes;
    put->start_length = 0;
    if (lseek(input->fd, position + (off_t)bytes, SEEK_SET) < 0)
        return gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", input->name);
    return GB_STATUS_OK;
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
    if (code == GPUBUF_E_INVALID) /* such as a column's name, which comes from the file */
        return gb_cli_error(put->cli, code, "cannot create %s of %s", put->name, put->input.name);
    return code == 0 ? GB_STATUS_OK : gb_cli_error(put->cli, code, "cannot create %s", put->name);
}

/* A buffer of an object on a GPU, which is filled on the host and then copied. */
struct gb_put_stage {
    struct gb_put_stage *next;
    struct gpubuf_object *object; /* a reference of its own */
    enum gpubuf_which which;
    uint64_t bytes;
    void *data;
};

static int stage(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which,
                 uint64_t bytes, void **data)
{
    struct gb_put_stage *stage = malloc(sizeof(*stage));
    void *memory = calloc(1, bytes + 1);

    if (!stage || !memory) {
        free(stage);
        free(memory);
        gb_fail_memory(&put->error);
        return gb_put_failure(put);
    }
    *stage = (struct gb_put_stage){put->stages, gpubuf_retain(object), which, bytes, memory};
    put->stages = stage;
    *data = memory;
    return GB_STATUS_OK;
}

int gb_put_memory(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which,
                  void **data)
{
    struct gpubuf_memory memory = {0};

    int code = gpubuf_memory(object, which, &memory);
    if (code < 0)
        return gb_cli_error(put->cli, code, "cannot write %s", put->name);
    *data = memory.pointer;
    if (memory.pointer && !gb_is_host(gpubuf_device(object)))
        return stage(put, object, which, memory.bytes, data);
    return GB_STATUS_OK;
}

int gb_put_finish(struct gb_put *put)
{
    for (const struct gb_put_stage *stage = put->stages; stage; stage = stage->next) {
        int code = gpubuf_write(stage->object, stage->which, 0, stage->data, stage->bytes, NULL);
        if (code < 0)
            return gb_cli_error(put->cli, code, "cannot write %s", put->name);
    }
    return GB_STATUS_OK;
}

void gb_put_end(struct gb_put *put)
{
    while (put->stages) {
        struct gb_put_stage *stage = put->stages;
        put->stages = stage->next;
        gpubuf_release(stage->object);
        free(stage->data);
        free(stage);
    }
    gpubuf_release(put->object); /* if it is not sealed, this takes it back */
    free(put->null_counts);
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
    return status != GB_STATUS_OK || !data ? status
                                           : gb_put_memory(put, put->object, GPUBUF_DATA, data);
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
