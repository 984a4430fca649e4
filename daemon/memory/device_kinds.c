#include "daemon/memory/device_kinds.h"

#include <string.h>

/* A new kind of device is a struct of operations and a row here. */
static const struct gb_device_ops *const kinds[] = {&gb_device_host, &gb_device_cuda,
                                                    &gb_device_hip};

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
