#include "client/gpubufctl/data/put.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "proto/wire/handle.h"

void gb_put_check_name(const struct gb_put *put, const char *file)
{
    static const char *const others[] = {
        ".orc", ".h5", ".xlsx", ".pt", ".pkl",
    };
    const char *end = strrchr(file, '.');

    if (end && strcasecmp(end, ".json") == 0)
        gb_cli_usage(put->cli,
                     "%s: JSON lines (.jsonl) can be put: jq -c '.[]' makes these of an array of "
                     "objects; --format raw takes the file's bytes as they are",
                     put->input.name);
    for (size_t i = 0; end && i < sizeof(others) / sizeof(*others); i++)
        if (strcasecmp(end, others[i]) == 0)
            gb_cli_usage(put->cli,
                         "%s: gpubufctl does not read %s files, though Python can read one and put "
                         "it; --format raw takes its bytes as they are",
                         put->input.name, others[i]);
    if (end && !strchr(end, '/') && strcasecmp(end, ".bin") != 0 && strcasecmp(end, ".raw") != 0)
        fprintf(stderr,
                "gpubufctl: %s: no format that gpubufctl knows, so its bytes are stored as they "
                "are (--format raw silences this)\n",
                put->input.name);
}

void gb_put_bound(struct gb_put *put, bool text)
{
    enum { TEXT_TIMES = 16 }; /* text takes more bytes than its values, but not without end */
    cJSON *stats = gb_cli_ask(put->cli, "stats", NULL);
    uint64_t most = 0;

    GB_CJSON_EACH(device, gb_cjson_member(stats, "devices")) {
        const char *id = gb_cjson_string_of(device, "id", "");
        uint64_t capacity = (uint64_t)gb_cjson_int_of(device, "capacity", 0);
        bool asked = put->create.device && strcmp(put->create.device, id) == 0;
        if (!asked && capacity <= most)
            continue;
        most = capacity;
        (void)snprintf(put->where, sizeof(put->where), "%s, which has %s", id,
                       gb_size(capacity).text);
        if (asked)
            break;
    }
    cJSON_Delete(stats);
    put->most = text ? most * TEXT_TIMES : most;
}

uint64_t gb_put_read(struct gb_put *put, void *buffer, uint64_t size)
{
    size_t held = put->start_length < size ? put->start_length : (size_t)size;

    if (held > 0) {
        memcpy(buffer, put->start, held);
        memmove(put->start, put->start + held, put->start_length - held);
        put->start_length -= held;
    }
    uint64_t got = held + gb_input_read(&put->input, (char *)buffer + held, size - held);
    if (put->most && put->input.done > put->most)
        gb_cli_refuse(GPUBUF_E_NO_SPACE, "it is larger than %s", put->where);
    return got;
}

void gb_put_stream(struct gb_put *put, uint64_t at, uint64_t bytes)
{
    struct gb_input *input = &put->input;
    off_t position = lseek(input->fd, 0, SEEK_CUR) - (off_t)put->start_length;
    struct gpubuf_file_range range = {input->fd, (uint64_t)position, bytes, at};

    int code = gb_file_fill(put->object, GPUBUF_DATA, &range, input->progress, input->done);
    if (code == GPUBUF_E_INVALID || code == GPUBUF_E_SYSTEM) /* names the file itself */
        gb_cli_fail(GB_STATUS_FAILED, "%s", gpubuf_errmsg(put->cli->client));
    gb_cli_check(put->cli, code, "cannot write %s", put->name);
    input->done += bytes;
    put->start_length = 0;
    if (lseek(input->fd, position + (off_t)bytes, SEEK_SET) < 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", input->name);
}

void gb_put_create(struct gb_put *put, const struct gpubuf_layout_spec *layout)
{
    gb_cli_connect(put->cli);
    int code = gpubuf_create(put->cli->client, put->name, layout, &put->create, &put->object);
    if (code == GPUBUF_E_INVALID) /* such as a column's name, which comes from the file */
        gb_cli_check(put->cli, code, "cannot create %s of %s", put->name, put->input.name);
    gb_cli_check(put->cli, code, "cannot create %s", put->name);
}

/* A buffer of an object on a GPU, which is filled on the host and then copied. */
struct gb_put_stage {
    struct gb_put_stage *next;
    struct gpubuf_object *object; /* a reference of its own */
    enum gpubuf_which which;
    uint64_t bytes;
    void *data;
};

void *gb_put_memory(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which)
{
    struct gpubuf_memory memory = {0};
    struct gb_put_stage *stage;

    gb_cli_check(put->cli, gpubuf_memory(object, which, &memory), "cannot write %s", put->name);
    if (!memory.pointer || gb_is_host(gpubuf_device(object)))
        return memory.pointer;
    stage = gb_new(1, sizeof(*stage));
    *stage = (struct gb_put_stage){put->stages, gpubuf_retain(object), which, memory.bytes,
                                   gb_new(memory.bytes, 1)};
    put->stages = stage;
    return stage->data;
}

void gb_put_finish(struct gb_put *put)
{
    for (const struct gb_put_stage *stage = put->stages; stage; stage = stage->next)
        gb_cli_check(put->cli,
                     gpubuf_write(stage->object, stage->which, 0, stage->data, stage->bytes, NULL),
                     "cannot write %s", put->name);
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
    gpubuf_release(put->object);
    free(put->null_counts);
}

void gb_put_create_array(struct gb_put *put, const struct gb_dtype *dtype, unsigned ndim,
                         const uint64_t *shape)
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
            gb_cli_fail(GB_STATUS_FAILED,
                        "%s: a column has one axis, but the array has %u; leave --kind out",
                        put->input.name, ndim);
        layout = (struct gpubuf_layout_spec){
            .kind = GPUBUF_KIND_COLUMN,
            .column = {.dtype = text, .length = shape[0]},
        };
    }
    gb_put_create(put, &layout);
}

void gb_put_check_length(const struct gb_put *put, uint64_t expected, uint64_t got, bool more)
{
    if (more)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%s: has bytes after the %" PRIu64 " that its dtype and shape make up",
                    put->input.name, expected);
    if (got < expected)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%s: is cut short: its dtype and shape make up %" PRIu64
                    " bytes of data, but there are %" PRIu64,
                    put->input.name, expected, got);
}
