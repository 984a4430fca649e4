#include "daemon/memory/device.h"

#include <inttypes.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* The least budget of a device: the bytes of a segment. */
#define LEAST_BUDGET ((uint64_t)2 << 20)

int gb_device_spec_capacity(const struct gb_device_spec *spec, uint64_t total, uint64_t *capacity,
                            struct gb_error *error)
{
    *capacity = spec->bytes ? spec->bytes : total / 100 * spec->percent;
    if (*capacity > total)
        return gb_fail(error, GPUBUF_E_INVALID, "that is more than the device has, %" PRIu64 " MiB",
                       total >> 20);
    if (*capacity < LEAST_BUDGET)
        return gb_fail(error, GPUBUF_E_INVALID, "a device needs at least 2M");
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
    GB_WRITE_UINT(writer, ",\"capacity\":", device->capacity);
    GB_WRITE_UINT(writer, ",\"used\":", device->used);
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

struct gb_device *gb_device_find(struct gb_device *const *devices, unsigned count, const char *id)
{
    if (!id)
        return devices[0];
    for (unsigned i = 0; i < count; i++)
        if (*id && (strcmp(devices[i]->id, id) == 0 || strcmp(devices[i]->alias, id) == 0))
            return devices[i];
    return NULL;
}

/* ---- sizes ---- */

/* A 64th of the capacity, or a 32nd if making a segment takes a driver's time; but 64 MiB at least,
   1 GiB at most, and never more than the capacity. */
uint64_t gb_store_largest_shared(const struct gb_device *device)
{
    uint64_t largest = device->capacity / (device->can_block ? 32 : 64);

    if (largest < 64 * MIB)
        largest = 64 * MIB;
    if (largest > 1024 * MIB)
        largest = 1024 * MIB;
    if (largest > device->capacity)
        largest = device->capacity;
    return largest / device->granularity * device->granularity;
}

bool gb_store_gets_own(const struct gb_device *device, uint64_t bytes)
{
    return bytes > gb_store_largest_shared(device) / 4;
}

uint64_t gb_device_retained(const struct gb_device *device)
{
    return device->allocated - device->used - device->pinned_by_clients;
}

uint64_t gb_device_free_bytes(const struct gb_device *device)
{
    return device->allocated < device->capacity ? device->capacity - device->allocated : 0;
}

uint64_t gb_device_lacks(const struct gb_device *device, uint64_t bytes)
{
    uint64_t stays = device->used - device->recency.bytes + device->pinned_by_clients;
    uint64_t unit = device->granularity;

    if (gb_store_gets_own(device, bytes))
        bytes = (bytes + unit - 1) / unit * unit;
    return stays + bytes > device->capacity ? stays + bytes - device->capacity : 0;
}
