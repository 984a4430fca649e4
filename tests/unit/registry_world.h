/*
 * The world of the registry's tests. Storage is made here: without placements, but of a size, so
 * that the accounts of what is leased and pinned show. The registry's sources are included, so that
 * their allocations can be made to fail. Each test program includes it once, after cmocka.h.
 */
#ifndef GB_TEST_REGISTRY_WORLD_H
#define GB_TEST_REGISTRY_WORLD_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failing.h"

#include "daemon/objects/lease.c"
#include "daemon/objects/registry.c"
#include "daemon/objects/text.c"
#include "daemon/store/store.h"

enum { OBJECTS = 200, HOLDERS = 3 };

static struct {
    struct gb_device device;
    struct gb_store store;
    struct gb_registry registry;
    struct gb_user *user;
    struct gb_holder holders[HOLDERS];
    struct gb_layout layout;
    enum gb_event events[OBJECTS * 2];
    char event_names[OBJECTS * 2][8];
    unsigned event_count;
    uint64_t recalled; /* the id of the lease that was recalled last */
    unsigned recalls;
} world;

static inline void on_event(void *arg, enum gb_event event, struct gb_object *object)
{
    assert_ptr_equal(arg, &world);
    assert_true(object->named);
    if (event == GB_EVENT_PARKED) /* of an older version, too; the tests count the others */
        return;
    assert_ptr_equal(gb_registry_find(&world.registry, object->name, object->name_length), object);
    if (world.event_count == OBJECTS * 2)
        world.event_count = 0;
    world.events[world.event_count] = event;
    snprintf(world.event_names[world.event_count++], 8, "%s", object->name);
}

static inline void on_recall(void *arg, struct gb_lease *one)
{
    assert_ptr_equal(arg, &world);
    assert_true(one->idle_ms > 0);
    world.recalled = one->id;
    world.recalls++;
}

static inline void begin(void)
{
    memset(&world, 0, sizeof(world));
    snprintf(world.device.id, sizeof(world.device.id), "host");
    world.device.capacity = UINT64_MAX / 2;
    gb_device_init(&world.device, NULL);
    gb_store_init(&world.store);
    gb_registry_init(&world.registry, &world.store);
    world.registry.on_event = on_event;
    world.registry.on_event_arg = &world;
    world.registry.recall = on_recall;
    world.registry.recall_arg = &world;
    world.registry.recall_ms = 100;
    world.user = gb_user_get(&world.store.users, 1000);
    assert_non_null(world.user);
    for (int i = 0; i < HOLDERS; i++)
        gb_holder_init(&world.holders[i]);
    world.layout = (struct gb_layout){.kind = GB_KIND_BYTES, .bytes = 8};
    world.layout.column.data = (struct gb_buffer){.present = true, .segment = 1, .bytes = 8};
}

static inline void end(void)
{
    for (int i = 0; i < HOLDERS; i++)
        gb_holder_end(&world.registry, &world.holders[i]);
    for (int i = 0; i < HOLDERS; i++) {
        assert_int_equal(world.holders[i].idle, 0);
        gb_page_free(world.holders[i].page);
    }
    assert_int_equal(world.registry.idle_count, 0);
    gb_registry_end(&world.registry);
    assert_int_equal(world.device.leased, 0);
    assert_int_equal(world.device.pinned, 0);
    assert_int_equal(world.device.objects, 0);
    assert_int_equal(world.device.recency.count, 0);
    assert_int_equal(world.user->has[GB_QUOTA_OBJECTS], 0);
    gb_user_unref(world.user);
    gb_store_end(&world.store);
}

/* For TEST_WITH(). */
static inline int set_up(void **state)
{
    begin();
    return 0;
}

static inline int tear_down(void **state)
{
    end();
    return 0;
}

/* Storage without placements; from the system's calloc, as the store frees it. */
static inline struct gb_storage *storage_of(uint64_t bytes)
{
#undef calloc
    struct gb_storage *storage = calloc(1, sizeof(*storage));
#define calloc failing_calloc

    assert_non_null(storage);
    storage->store = &world.store;
    gb_list_init(&storage->of_state);
    storage->references = 1;
    storage->device = &world.device;
    gb_stake_init(storage, world.user);
    storage->resident = true;
    storage->bytes = bytes;
    gb_list_init(&storage->objects);
    gb_list_init(&storage->idles);
    return storage;
}

/* Renders an object's description as the daemon's methods do. */
static inline int render_object(struct gb_object *object, uint64_t version)
{
    struct gb_error error;
    struct gb_writer writer, room;
    int r;

    gb_writer_init(&writer, 0);
    gb_writer_init(&room, 0);
    gb_layout_write(&writer, &world.layout, GB_LAYOUT_REPLY);
    r = gb_object_render(object, &writer, version, &room, &error);
    gb_writer_end(&writer);
    return r;
}

static inline struct gb_object *object_new(const char *name, struct gb_storage *storage)
{
    struct gb_object *object =
        gb_object_new(&world.registry, name, strlen(name), storage, world.user);

    assert_non_null(object);
    object->evict = GB_EVICT_DROP;
    object->mode = 0600;
    assert_int_equal(render_object(object, world.registry.next_version), 0);
    return object;
}

static inline struct gb_object *publish(const char *name, struct gb_storage *storage, bool replace)
{
    struct gb_object *object = object_new(name, storage);
    struct gb_error error;

    assert_int_equal(gb_registry_publish(&world.registry, object, replace, 0, &error), 0);
    return object;
}

static inline struct gb_lease *lease(struct gb_object *object, int holder)
{
    struct gb_lease *one = gb_lease_new(&world.registry, object, &world.holders[holder], false, 0);

    assert_non_null(one);
    return one;
}

static inline struct gb_object *find(const char *name)
{
    return gb_registry_find(&world.registry, name, strlen(name));
}

static inline void expect_event(unsigned from_end, enum gb_event event, const char *name)
{
    assert_true(world.event_count > from_end);
    assert_int_equal(world.events[world.event_count - 1 - from_end], event);
    assert_string_equal(world.event_names[world.event_count - 1 - from_end], name);
}

/* Evicts the least recently used storage; false if none may be evicted. */
static inline bool evict_oldest(void)
{
    struct gb_recent *oldest = gb_recency_oldest(&world.device.recency);

    if (oldest)
        gb_registry_evict(&world.registry, GB_CONTAINER(oldest, struct gb_storage, recent));
    return oldest;
}

static inline const _Atomic uint64_t *give_page(int holder)
{
    int fd;
    void *page;

    assert_int_equal(gb_page_new(&world.holders[holder].page, &fd, NULL), 0);
    page = mmap(NULL, GB_PAGE_SLOTS * 8, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    close(fd);
    return page;
}

#endif
