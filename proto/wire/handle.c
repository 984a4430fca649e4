#include "proto/wire/handle.h"

#include <string.h>

#include "proto/base/limits.h"
#include "proto/driver/cuda.h"

/* ---- the parts that both messages share ---- */

struct raw_handle {
    struct gb_string kind, ipc, uuid, device;
    uint64_t fd, bytes;
};

#define REQUIRED GB_FIELD_REQUIRED
#define HANDLE(member, type, flags, min, max)                                                      \
    GB_FIELD(struct raw_handle, member, type, flags, min, max)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define IPC_TEXT ((GB_IPC_BYTES + 2) / 3 * 4)
#define DEVICE_TEXT 64

static const char *const kind_names[GB_DRIVERS][3] = {
    {"memfd", "cuda_fd", "cuda_ipc"},
    {"memfd", "hip_fd", "hip_ipc"},
};

const char *gb_handle_kind_name(enum gb_handle_kind kind, const char *device)
{
    return kind_names[gb_driver_of(device)][kind];
}

enum { HAS_KIND = 1, HAS_FD = 2, HAS_IPC = 4 }; /* the first fields of both tables, as bits */

static const struct gb_field request_fields[] = {
    HANDLE(kind, GB_FIELD_STRING, REQUIRED, 0, 16),
    HANDLE(fd, GB_FIELD_UINT, 0, 0, GB_LIMIT(fds) - 1),
    HANDLE(ipc, GB_FIELD_STRING, 0, 0, IPC_TEXT),
    HANDLE(bytes, GB_FIELD_UINT, REQUIRED, 1, GB_LIMIT(integer)),
    HANDLE(device, GB_FIELD_STRING, REQUIRED, 0, DEVICE_TEXT),
};

static const struct gb_field reply_fields[] = {
    HANDLE(kind, GB_FIELD_STRING, REQUIRED, 0, 16),
    HANDLE(fd, GB_FIELD_UINT, 0, 0, GB_LIMIT(fds) - 1),
    HANDLE(ipc, GB_FIELD_STRING, 0, 0, IPC_TEXT),
    HANDLE(uuid, GB_FIELD_STRING, 0, 0, DEVICE_TEXT),
};

/* The kind, which the device must have. */
static int read_kind(const struct gb_string *text, const char *device, const struct gb_path *up,
                     enum gb_handle_kind *kind, struct gb_error *error)
{
    struct gb_path path = {.up = up, .key = "kind"}, on = {.up = up, .key = "device"};
    bool known = false;

    for (unsigned i = 0; i < COUNT(kind_names[0]); i++) {
        enum gb_handle_kind one = (enum gb_handle_kind)i;
        bool fits = (one == GB_HANDLE_MEMFD) == gb_is_host(device);
        if (fits && strcmp(gb_handle_kind_name(one, device), text->text) == 0) {
            *kind = one;
            return 0;
        }
        known = known || strcmp(kind_names[GB_CUDA][i], text->text) == 0 ||
                strcmp(kind_names[GB_HIP][i], text->text) == 0;
    }
    if (known)
        return gb_fail_at(error, &on, "a %s cannot be on \"%s\"", text->text, device);
    return gb_fail_at(error, &path,
                      "expected \"memfd\", \"cuda_fd\", \"cuda_ipc\", \"hip_fd\" or \"hip_ipc\", "
                      "not \"%s\"",
                      text->text);
}

/* The fd or the ipc text, whichever the kind has; the other must be absent. */
static int read_means(const struct raw_handle *raw, uint64_t present, const struct gb_path *up,
                      struct gb_handle *handle, struct gb_error *error)
{
    bool ipc = handle->kind == GB_HANDLE_CUDA_IPC;
    struct gb_path wanted = {.up = up, .key = ipc ? "ipc" : "fd"};
    struct gb_path unwanted = {.up = up, .key = ipc ? "fd" : "ipc"};

    if (!(present & (ipc ? HAS_IPC : HAS_FD)))
        return gb_fail_at(error, &wanted, "missing; kind %s needs it", raw->kind.text);
    if (present & (ipc ? HAS_FD : HAS_IPC))
        return gb_fail_at(error, &unwanted, "kind %s has none", raw->kind.text);
    handle->fd = raw->fd;
    if (ipc &&
        gb_base64_decode(raw->ipc.text, raw->ipc.length, handle->ipc, GB_IPC_BYTES) != GB_IPC_BYTES)
        return gb_fail_at(error, &wanted, "expected %d bytes in base64", GB_IPC_BYTES);
    return 0;
}

int gb_handle_read(struct gb_json value, const struct gb_path *path, struct gb_pool *pool,
                   struct gb_handle *handle, struct gb_error *error)
{
    struct raw_handle raw = {.fd = 0};
    struct gb_handle read = {.fd = 0};
    uint64_t present = 0;
    int r = gb_json_read(value, request_fields, COUNT(request_fields), GB_UNKNOWN_REFUSE, path,
                         pool, &raw, &present, error);

    if (r == 0)
        r = read_kind(&raw.kind, raw.device.text, path, &read.kind, error);
    if (r == 0)
        r = read_means(&raw, present, path, &read, error);
    if (r < 0)
        return r;
    read.bytes = raw.bytes;
    read.device = raw.device.text;
    *handle = read;
    return 0;
}

/* ---- segments in replies ---- */

struct raw_segment {
    uint64_t id, bytes;
    struct gb_string device, access;
    struct gb_json handle;
};

#define SEGMENT(member, type, min, max)                                                            \
    GB_FIELD(struct raw_segment, member, type, REQUIRED, min, max)

static const struct gb_field segment_fields[] = {
    SEGMENT(id, GB_FIELD_UINT, 0, 0),
    SEGMENT(device, GB_FIELD_STRING, 0, DEVICE_TEXT),
    SEGMENT(bytes, GB_FIELD_UINT, 1, GB_LIMIT(integer)),
    SEGMENT(access, GB_FIELD_STRING, 0, 2),
    SEGMENT(handle, GB_FIELD_OBJECT, 0, 0),
};

static int read_reply_handle(struct gb_json value, const char *device, const struct gb_path *up,
                             struct gb_pool *pool, struct gb_handle *handle, struct gb_error *error)
{
    struct gb_path path = {.up = up, .key = "handle"};
    struct raw_handle raw = {.fd = 0};
    uint64_t present = 0;
    int r = gb_json_read(value, reply_fields, COUNT(reply_fields), GB_UNKNOWN_IGNORE, &path, pool,
                         &raw, &present, error);

    if (r == 0)
        r = read_kind(&raw.kind, device, &path, &handle->kind, error);
    if (r == 0)
        r = read_means(&raw, present, &path, handle, error);
    if (r == 0 && handle->kind == GB_HANDLE_CUDA_IPC) {
        struct gb_path uuid = {.up = &path, .key = "uuid"};
        if (!raw.uuid.text)
            return gb_fail_at(error, &uuid, "missing; kind %s needs it", raw.kind.text);
        handle->uuid = raw.uuid.text;
    }
    return r;
}

int gb_segment_read(struct gb_json value, const struct gb_path *path, struct gb_pool *pool,
                    struct gb_segment_info *segment, struct gb_error *error)
{
    struct raw_segment raw = {.id = 0};
    struct gb_segment_info read = {.id = 0};
    struct gb_path access = {.up = path, .key = "access"};
    int r = gb_json_read(value, segment_fields, COUNT(segment_fields), GB_UNKNOWN_IGNORE, path,
                         pool, &raw, NULL, error);

    if (r == 0)
        r = read_reply_handle(raw.handle, raw.device.text, path, pool, &read.handle, error);
    if (r < 0)
        return r;
    read.writable = strcmp(raw.access.text, "rw") == 0;
    if (!read.writable && strcmp(raw.access.text, "r") != 0)
        return gb_fail_at(error, &access, "expected \"r\" or \"rw\", not \"%s\"", raw.access.text);
    read.id = raw.id;
    read.device = raw.device.text;
    read.bytes = raw.bytes;
    *segment = read;
    return 0;
}

static void write_handle(struct gb_writer *writer, const struct gb_segment_info *segment)
{
    const struct gb_handle *handle = &segment->handle;

    GB_WRITE_LITERAL(writer, "{\"kind\":\"");
    gb_write_text(writer, gb_handle_kind_name(handle->kind, segment->device));
    if (handle->kind == GB_HANDLE_CUDA_IPC) {
        GB_WRITE_LITERAL(writer, "\",\"ipc\":");
        gb_write_base64(writer, handle->ipc, GB_IPC_BYTES);
        GB_WRITE_LITERAL(writer, ",\"uuid\":");
        gb_write_cstring(writer, handle->uuid);
    } else {
        GB_WRITE_UINT(writer, "\",\"fd\":", handle->fd);
    }
    gb_write_char(writer, '}');
}

void gb_segment_write(struct gb_writer *writer, const struct gb_segment_info *segment)
{
    GB_WRITE_UINT(writer, "{\"id\":", segment->id);
    GB_WRITE_LITERAL(writer, ",\"device\":");
    gb_write_cstring(writer, segment->device);
    GB_WRITE_UINT(writer, ",\"bytes\":", segment->bytes);
    GB_WRITE_LITERAL(writer, ",\"access\":");
    if (segment->writable)
        GB_WRITE_LITERAL(writer, "\"rw\"");
    else
        GB_WRITE_LITERAL(writer, "\"r\"");
    GB_WRITE_LITERAL(writer, ",\"handle\":");
    write_handle(writer, segment);
    gb_write_char(writer, '}');
}
