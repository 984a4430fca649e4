#include "daemon/memory/device.h"

#include <stddef.h>
#include <string.h>

void gb_device_write(struct gb_writer *writer, const struct gb_device *device, bool is_default)
{
    bool fd = device->ops->can_share(device, GB_SHARE_FD);
    bool ipc = device->ops->can_share(device, GB_SHARE_IPC);

    gb_write_format(writer, "{\"id\":\"%s\"", device->id);
    if (strcmp(device->id, "host") != 0)
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
