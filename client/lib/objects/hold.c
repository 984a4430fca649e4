#include "client/lib/objects/hold.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/window.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/report.h"

/* Uses an import as a lease does, so that the segment is neither unmapped nor told to be. */
struct gb_hold {
    struct gb_view_window *window; /* of a view; then nothing else is held */
    struct gpubuf_client *client;  /* counted */
    struct gb_import *import;
    const struct gb_mapped *mapping;
};

static const struct gb_buffer *find_buffer(const struct gpubuf_object *object,
                                           enum gpubuf_which which)
{
    switch (which) {
    case GPUBUF_MASK:
        return &object->column->mask;
    case GPUBUF_OFFSETS:
        return &object->column->offsets;
    default:
        return &object->column->data;
    }
}

static const struct gb_mapped *find_mapping(const struct gb_import *import, const void *address)
{
    for (int access = 0; access < 2; access++) {
        const struct gb_mapped *mapping = import->mappings[access];
        if (mapping && gb_mapped_address(mapping) == address)
            return mapping;
    }
    return NULL;
}

static int hold_window(const struct gb_client_lease *lease, struct gb_hold **out,
                       struct gpubuf_memory *memory)
{
    if (strcmp(lease->device, "host") != 0)
        return 1;
    struct gb_hold *hold = calloc(1, sizeof(*hold));
    if (!hold)
        return gb_report_memory(lease->client);
    hold->window = lease->window;
    gb_window_hold(hold->window);
    *memory = (struct gpubuf_memory){
        .pointer = gb_window_address(hold->window),
        .bytes = gb_window_bytes(hold->window),
    };
    *out = hold;
    return 0;
}

int gb_hold_mapping(const struct gpubuf_object *object, enum gpubuf_which which,
                    struct gb_hold **out, struct gpubuf_memory *memory)
{
    struct gpubuf_memory part;
    int r = gpubuf_memory(object, which, &part);

    if (r != 0)
        return r;
    const struct gb_client_lease *lease = object->lease;
    const struct gb_buffer *buffer = find_buffer(object, which);
    if (buffer->segment == GB_NO_SEGMENT || (object->selection && object->selection->copy))
        return 1;
    if (lease->window)
        return hold_window(lease, out, memory);
    struct gb_import *import = lease->segments[buffer->segment].import;
    const struct gb_mapped *mapping =
        find_mapping(import, lease->segments[buffer->segment].address);
    if (!mapping || gb_mapped_gpu(mapping))
        return 1;

    struct gb_hold *hold = malloc(sizeof(*hold));
    if (!hold)
        return gb_report_memory(lease->client);
    *hold = (struct gb_hold){NULL, lease->client, import, mapping};
    gb_client_retain(lease->client);
    pthread_mutex_lock(&lease->client->lock);
    gb_imports_use(&lease->client->imports, import);
    pthread_mutex_unlock(&lease->client->lock);
    *memory = (struct gpubuf_memory){
        .pointer = gb_mapped_address(mapping),
        .bytes = gb_mapped_bytes(mapping),
        .writable = lease->access.writable,
    };
    if (lease->access.live && lease->access.writable) {
        memory->pointer = gb_buffer_address(lease, buffer);
        memory->bytes = buffer->bytes;
    }
    *out = hold;
    return 0;
}

const void *gb_hold_key(const struct gb_hold *hold)
{
    return hold->window ? (const void *)hold->window : hold->mapping;
}

void gb_hold_drop(struct gb_hold *hold)
{
    if (!hold)
        return;
    struct gpubuf_client *client = hold->client;
    if (hold->window) {
        gb_window_release(hold->window);
    } else if (!gb_is_forked(client)) {
        pthread_mutex_lock(&client->lock);
        gb_imports_unuse(&client->imports, hold->import);
        if (client->end.lost.code)
            gb_imports_abandon(&client->imports);
        else
            gb_imports_trim(&client->imports);
        gb_send_releases(client);
        pthread_mutex_unlock(&client->lock);
        gb_client_release(client);
    }
    free(hold);
}
