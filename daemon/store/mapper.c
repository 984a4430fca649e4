/* Which mapper, a session, maps which segment. */
#include <stdlib.h>

#include "daemon/store/store.h"

static uint64_t mapping_hash(uint64_t mapper, uint64_t segment)
{
    return gb_hash_id(gb_hash_id(mapper) ^ segment);
}

struct gb_mapping *gb_mapper_find(const struct gb_store *store, const struct gb_mapper *mapper,
                                  uint64_t segment)
{
    uint64_t hash = mapping_hash(mapper->id, segment);

    for (struct gb_hash_link *link = gb_hash_first(&store->mappings, hash); link;
         link = gb_hash_next(link)) {
        struct gb_mapping *mapping = GB_CONTAINER(link, struct gb_mapping, link);

        if (mapping->mapper == mapper && mapping->segment->id == segment)
            return mapping;
    }
    return NULL;
}

int gb_mapper_add(struct gb_store *store, struct gb_mapper *mapper, struct gb_segment *segment,
                  enum gb_access access)
{
    struct gb_mapping *mapping = gb_mapper_find(store, mapper, segment->id);

    if (mapping) {
        mapping->access = mapping->access > access ? mapping->access : access;
        return 0;
    }
    mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return GPUBUF_E_NO_MEMORY;
    mapping->mapper = mapper;
    mapping->segment = segment;
    mapping->access = access;
    if (!gb_hash_insert(&store->mappings, &mapping->link, mapping_hash(mapper->id, segment->id))) {
        free(mapping);
        return GPUBUF_E_NO_MEMORY;
    }
    gb_list_append(&mapper->mappings, &mapping->of_mapper);
    mapper->bytes += segment->bytes;
    if (gb_list_empty(&segment->mappings))
        gb_segment_mapped(segment, true);
    gb_list_append(&segment->mappings, &mapping->of_segment);
    segment->asked_ms = 0;
    return 0;
}

void gb_mapping_end(struct gb_store *store, struct gb_mapping *mapping)
{
    struct gb_segment *segment = mapping->segment;

    mapping->mapper->bytes -= segment->bytes;
    gb_walks_leave(&store->walks, &mapping->of_mapper);
    gb_list_remove(&mapping->of_mapper);
    gb_list_remove(&mapping->of_segment);
    gb_hash_remove(&store->mappings, &mapping->link);
    free(mapping);
    gb_segment_unmapped(store, segment);
}

unsigned gb_mapper_end_some(struct gb_store *store, struct gb_mapper *mapper, unsigned most)
{
    struct gb_link *mappings = &mapper->mappings;
    unsigned ended = 0;

    for (; ended < most && !gb_list_empty(mappings); ended++)
        gb_mapping_end(store, GB_CONTAINER(mappings->next, struct gb_mapping, of_mapper));
    return ended;
}

void gb_segment_ask(struct gb_store *store, struct gb_segment *segment, uint64_t now_ms)
{
    bool overdue = segment->asked_ms && now_ms - segment->asked_ms >= store->unmap_ms;

    GB_LIST_EACH(&segment->mappings, struct gb_mapping, mapping, of_segment) {
        if (overdue)
            store->overdue(store->retire_arg, mapping->mapper);
        else if (!segment->asked_ms)
            store->retire(store->retire_arg, mapping->mapper, segment);
    }
    if (!segment->asked_ms)
        segment->asked_ms = segment->device->asked_ms = now_ms;
}

uint64_t gb_mappers_end_overdue(struct gb_store *store, struct gb_device *device, uint64_t now_ms)
{
    uint64_t next = device->asked_ms ? device->asked_ms + store->unmap_ms : UINT64_MAX;

    if (now_ms >=
        next) { /* waiting requests are tried again, and gb_segment_ask() finds the overdue */
        gb_device_changed(device);
        device->asked_ms = 0;
        next = UINT64_MAX;
    }
    while (!gb_list_empty(&device->retiring)) {
        struct gb_segment *segment = GB_CONTAINER(device->retiring.next, struct gb_segment, place);
        uint64_t at = segment->retired_ms + store->unmap_ms;

        if (device->needed_ms < segment->retired_ms)
            return next;
        if (now_ms < at)
            return at < next ? at : next;
        gb_list_remove(&segment->place);
        GB_LIST_EACH(&segment->mappings, struct gb_mapping, mapping, of_segment)
            store->overdue(store->retire_arg, mapping->mapper);
    }
    return next;
}
