#include "client/node/src/table.h"

#include <stdlib.h>
#include <string.h>

#include "client/node/src/values.h"

double gb_object_add(struct gb_addon *addon, struct gpubuf_object *object)
{
    size_t i = addon->object_free;

    while (i < addon->object_count && addon->objects[i].object)
        i++;
    if (i == addon->object_count) {
        size_t count = addon->object_count ? 2 * addon->object_count : 64;
        struct gb_slot *objects = realloc(addon->objects, count * sizeof(*objects));
        if (!objects) {
            gpubuf_release(object);
            return -1;
        }
        memset(objects + addon->object_count, 0, (count - addon->object_count) * sizeof(*objects));
        addon->objects = objects;
        addon->object_count = count;
    }
    addon->objects[i] = (struct gb_slot){.object = object};
    addon->object_free = i + 1;
    return (double)i;
}

double gb_object_number(struct gb_addon *addon, struct gpubuf_object *object)
{
    enum gpubuf_kind kind = gpubuf_kind(object);
    double index = gb_object_add(addon, object);

    return index < 0 ? -1 : 8 * index + kind;
}

struct gpubuf_object *gb_object_take(struct gb_addon *addon, size_t index)
{
    if (index >= addon->object_count)
        return NULL;
    struct gpubuf_object *object = addon->objects[index].object;
    gpubuf_bundle_free(addon->objects[index].bundle);
    addon->objects[index] = (struct gb_slot){0};
    if (index < addon->object_free)
        addon->object_free = index;
    return object;
}

struct gpubuf_object *gb_object_at(struct gb_addon *addon, napi_value value, size_t *index)
{
    uint64_t i;

    if (!gb_read_index(addon->env, value, "the object", &i))
        return NULL;
    if (i >= addon->object_count || !addon->objects[i].object) {
        (void)gb_throw(addon->env, GPUBUF_E_STALE, "the object has been released");
        return NULL;
    }
    if (index)
        *index = i;
    return addon->objects[i].object;
}
