#include "daemon/memory/device.h"

#include <inttypes.h>
#include <string.h>

/* A budget is at least a segment. */
#define LEAST_BUDGET ((uint64_t)2 << 20)

/* A new kind of device is a struct of operations and a row here. */
static const struct gb_device_ops *const kinds[] = {&gb_device_host, &gb_device_cuda};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static const struct gb_device_ops *kind_of(const char *id)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (kinds[i]->is_meant(id))
            return kinds[i];
    return NULL;
}

size_t gb_device_id_length(const char *text)
{
    size_t first = strcspn(text, ":");

    for (size_t i = 0; i < KIND_COUNT; i++)
        if (kinds[i]->numbered && text[first] && strlen(kinds[i]->kind) == first &&
            memcmp(text, kinds[i]->kind, first) == 0)
            return first + 1 + strcspn(text + first + 1, ":");
    return first;
}

bool gb_device_is_known(const char *id)
{
    return kind_of(id);
}

int gb_device_open(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                   struct gb_error *error)
{
    unsigned before = *count;
    int r = kind_of(spec->id)->open(spec, devices, count, error);

    for (unsigned i = before; i < *count; i++)
        devices[i]->index = i;
    return r;
}

int gb_device_spec_capacity(const struct gb_device_spec *spec, uint64_t total, uint64_t *capacity,
                            struct gb_error *error)
{
    *capacity = spec->bytes ? spec->bytes : total / 100 * spec->percent;
    if (*capacity > total)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--device %s: that is more than the device has, %" PRIu64 " MiB", spec->text,
                       total >> 20);
    if (*capacity < LEAST_BUDGET)
        return gb_fail(error, GPUBUF_E_INVALID, "--device %s: a device needs at least 2M",
                       spec->text);
    return 0;
}

void gb_device_write(struct gb_writer *writer, const struct gb_device *device, bool is_default)
{
    bool fd = device->ops->can_share(device, GB_SHARE_FD);
    bool ipc = device->ops->can_share(device, GB_SHARE_IPC);

    gb_write_format(writer, "{\"id\":\"%s\"", device->id);
    if (!device->ops->is_host)
        gb_write_format(writer, ",\"uuid\":\"%s\"", device->id);
    GB_WRITE_LITERAL(writer, ",\"name\":");
    gb_write_cstring(writer, device->name);
    GB_WRITE_LITERAL(writer, ",\"capacity\":");
    gb_write_uint(writer, device->capacity);
    GB_WRITE_LITERAL(writer, ",\"used\":");
    gb_write_uint(writer, device->used);
    gb_write_format(writer, ",\"share\":[%s%s%s],\"default\":", fd ? "\"fd\"" : "",
                    fd && ipc ? "," : "", ipc ? "\"ipc\"" : "");
    gb_write_bool(writer, is_default);
    gb_write_char(writer, '}');
}

void gb_device_free(struct gb_device *device)
{
    if (device)
        device->ops->end(device);
}
