/*
 * Names, versions, leases, pins and the order of eviction: small cases, every allocation failing in
 * turn, and random operations against a model that keeps everything in arrays. Storage is made here:
 * without placements, but of a size, so that the accounts of what is leased and pinned show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing.h"
#include "random.h"

#include "daemon/objects/lease.c"
#include "daemon/objects/registry.c"
#include "daemon/objects/text.c"

enum { OBJECTS = 200, NAMES = 6, HOLDERS = 3, LEASES = 64 };

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
    uint64_t recalled; /* the last lease that was */
    unsigned recalls;
} world;

static void on_event(void *arg, enum gb_event event, struct gb_object *object)
{
    assert_ptr_equal(arg, &world);
    assert_true(object->named);
    assert_ptr_equal(gb_registry_find(&world.registry, object->name, object->name_length), object);
    if (world.event_count == OBJECTS * 2)
        world.event_count = 0;
    world.events[world.event_count] = event;
    snprintf(world.event_names[world.event_count++], 8, "%s", object->name);
}

static void on_recall(void *arg, struct gb_lease *one)
{
    assert_ptr_equal(arg, &world);
    assert_true(one->idle_ms > 0);
    world.recalled = one->id;
    world.recalls++;
}

static void begin(void)
{
    memset(&world, 0, sizeof(world));
    snprintf(world.device.id, sizeof(world.device.id), "host");
    world.device.capacity = UINT64_MAX / 2;
    gb_recency_init(&world.device.recency);
    gb_recency_init(&world.device.stay);
    gb_list_init(&world.device.waits);
    gb_list_init(&world.device.segment_list);
    gb_list_init(&world.device.retiring);
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

static void end(void)
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
    assert_int_equal(world.user->objects, 0);
    gb_user_unref(world.user);
    gb_store_end(&world.store);
}

/* Storage without placements; from the system's calloc, as the store frees it. */
static struct gb_storage *storage_of(uint64_t bytes)
{
#undef calloc
    struct gb_storage *storage = calloc(1, sizeof(*storage));
#define calloc failing_calloc

    assert_non_null(storage);
    storage->store = &world.store;
    gb_list_init(&storage->of_state);
    storage->references = 1;
    storage->device = &world.device;
    gb_charge_init(storage, world.user);
    storage->resident = true;
    storage->bytes = bytes;
    gb_list_init(&storage->objects);
    gb_list_init(&storage->waits);
    return storage;
}

/* As the methods do it. */
static int render_object(struct gb_object *object, uint64_t version)
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

static struct gb_object *object_new(const char *name, struct gb_storage *storage)
{
    struct gb_object *object =
        gb_object_new(&world.registry, name, strlen(name), storage, world.user);

    assert_non_null(object);
    object->evict = GB_EVICT_DROP;
    object->mode = 0600;
    assert_int_equal(render_object(object, world.registry.next_version), 0);
    return object;
}

static struct gb_object *publish(const char *name, struct gb_storage *storage, bool replace)
{
    struct gb_object *object = object_new(name, storage);
    struct gb_error error;

    assert_int_equal(gb_registry_publish(&world.registry, object, replace, 0, &error), 0);
    return object;
}

static struct gb_lease *lease(struct gb_object *object, int holder)
{
    struct gb_lease *one = gb_lease_new(&world.registry, object, &world.holders[holder], false, 0);

    assert_non_null(one);
    return one;
}

static struct gb_object *find(const char *name)
{
    return gb_registry_find(&world.registry, name, strlen(name));
}

static void expect_event(unsigned from_end, enum gb_event event, const char *name)
{
    assert_true(world.event_count > from_end);
    assert_int_equal(world.events[world.event_count - 1 - from_end], event);
    assert_string_equal(world.event_names[world.event_count - 1 - from_end], name);
}

/* ---- small cases ---- */

static void test_publish_replace_unname(void **state)
{
    struct gb_object *first, *second, *third;
    struct gb_error error;
    struct gb_lease *reader;

    (void)state;
    begin();
    first = publish("a", storage_of(10), false);
    assert_int_equal(first->version, 1);
    expect_event(0, GB_EVENT_SEALED, "a");
    second = object_new("a", storage_of(20));
    assert_int_equal(gb_registry_publish(&world.registry, second, false, 0, &error),
                     GPUBUF_E_EXISTS);
    assert_string_equal(error.name, "a");
    assert_int_equal(second->version, 0);
    reader = lease(first, 0);
    assert_int_equal(gb_registry_publish(&world.registry, second, true, 0, &error), 0);
    assert_int_equal(second->version, 2);
    assert_ptr_equal(find("a"), second);
    assert_int_equal(world.event_count, 2); /* of the replaced one nothing is told */
    assert_false(first->named);
    assert_int_equal(world.registry.objects, 2); /* its reader keeps it */
    gb_lease_end(&world.registry, reader);
    assert_int_equal(world.registry.objects, 1);
    third = publish("b", storage_of(1), false);
    gb_registry_unname(&world.registry, third, GB_EVENT_DELETED);
    expect_event(0, GB_EVENT_DELETED, "b");
    assert_null(find("b"));
    assert_int_equal(world.registry.objects, 1);
    end();
}

/* The least recently used storage; false if none may go. */
static bool evict_oldest(void)
{
    struct gb_recent *oldest = gb_recency_oldest(&world.device.recency);

    if (oldest)
        gb_registry_evict(&world.registry, GB_CONTAINER(oldest, struct gb_storage, recent));
    return oldest;
}

static void test_leases(void **state)
{
    struct gb_object *object;
    struct gb_lease *mine, *theirs;

    (void)state;
    begin();
    object = publish("a", storage_of(10), false);
    mine = lease(object, 0);
    theirs = lease(object, 1);
    assert_int_equal(world.device.leased, 10); /* counted once */
    assert_ptr_equal(gb_lease_find(&world.registry, mine->id, &world.holders[0]), mine);
    assert_null(gb_lease_find(&world.registry, mine->id, &world.holders[1]));
    assert_null(gb_lease_find(&world.registry, 99, &world.holders[0]));
    assert_false(evict_oldest());
    gb_registry_unname(&world.registry, object, GB_EVENT_DELETED);
    gb_lease_end(&world.registry, mine);
    assert_int_equal(world.device.leased, 10);
    assert_int_equal(theirs->object->version, 1);
    gb_holder_end(&world.registry, &world.holders[1]);
    assert_int_equal(world.registry.objects, 0);
    assert_int_equal(world.holders[1].count, 0);
    end();
}

/* ---- leases that are kept ---- */

static const _Atomic uint64_t *give_page(int holder)
{
    int fd;
    void *page;

    assert_int_equal(gb_page_new(&world.holders[holder].page, &fd, NULL), 0);
    page = mmap(NULL, GB_PAGE_SLOTS * 8, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    close(fd);
    return page;
}

static struct gb_lease *kept_lease(struct gb_object *object, int holder)
{
    struct gb_lease *one = lease(object, holder);

    gb_lease_slot(one);
    gb_lease_idle(&world.registry, one, 5);
    return one;
}

/* What is kept is no hold, and in the order; it is recalled once, and waited for, for a while. */
static void test_recall(void **state)
{
    const _Atomic uint64_t *page;
    struct gb_lease *a, *b;

    (void)state;
    begin();
    page = give_page(0);
    a = kept_lease(publish("a", storage_of(1), false), 0);
    b = kept_lease(publish("b", storage_of(2), false), 0);
    assert_int_equal(page[a->slot - 1], a->id);
    assert_int_equal(world.device.leased, 0);
    assert_int_equal(world.device.recency.bytes, 3);
    assert_int_equal(gb_registry_lease_count(&world.registry), 0);
    gb_lease_idle(&world.registry, a, 6); /* it was used: now b, a */
    assert_ptr_equal(gb_recency_oldest(&world.device.recency), &b->object->storage->recent);

    assert_true(gb_storage_recall(&world.registry, b->object->storage, 1000));
    assert_int_equal(world.recalled, b->id);
    assert_true(gb_storage_recall(&world.registry, b->object->storage, 1099));
    assert_int_equal(world.recalls, 1);
    gb_lease_used(&world.registry, b); /* that was the answer */
    assert_false(gb_storage_recall(&world.registry, b->object->storage, 1099));
    assert_int_equal(world.device.leased, 2);
    gb_lease_idle(&world.registry, b, 1100);

    assert_true(gb_storage_recall(&world.registry, a->object->storage, 2000));
    assert_false(gb_storage_recall(&world.registry, a->object->storage, 2100));
    assert_true(world.holders[0].deaf);
    assert_int_equal(world.device.leased, 1);
    assert_false(gb_storage_recall(&world.registry, b->object->storage, 2100)); /* at once */
    assert_int_equal(world.recalls, 2);
    assert_int_equal(world.device.leased, 3);
    assert_false(evict_oldest());
    munmap((void *)(uintptr_t)page, GB_PAGE_SLOTS * 8);
    end();
}

/* A slot is empty before anybody is told that the name means something else, and a release of what
   is kept is no use. */
static void test_outdate(void **state)
{
    const _Atomic uint64_t *page;
    struct gb_lease *used, *kept;
    struct gb_object *first;
    unsigned slots[2];

    (void)state;
    begin();
    page = give_page(0);
    first = publish("a", storage_of(1), false);
    used = lease(first, 0);
    gb_lease_slot(used);
    kept = kept_lease(first, 0);
    slots[0] = used->slot - 1;
    slots[1] = kept->slot - 1;
    publish("b", storage_of(1), false);
    publish("a", storage_of(2), true);
    assert_int_equal(page[slots[0]] | page[slots[1]], 0);
    assert_int_equal(world.recalls, 0); /* its holder finds out, or is asked when that is wanted */
    gb_lease_end(&world.registry, kept);
    assert_int_equal(first->lease_count, 1);
    gb_lease_idle(&world.registry, used, 7);
    assert_int_equal(world.recalled, used->id);
    gb_lease_end(&world.registry, used);
    assert_int_equal(world.registry.objects, 2);

    kept = kept_lease(find("b"), 0);
    gb_lease_end(&world.registry, lease(find("a"), 0)); /* now b, a */
    gb_lease_end(&world.registry, kept);
    assert_true(evict_oldest());
    assert_null(find("b"));
    munmap((void *)(uintptr_t)page, GB_PAGE_SLOTS * 8);
    end();
}

/* Least recently used first: a lease's end is a use. Pinned and kept ones stay; aliases go with it. */
static void test_eviction_order(void **state)
{
    struct gb_object *a, *b, *kept;

    (void)state;
    begin();
    a = publish("a", storage_of(1), false);
    b = publish("b", storage_of(2), false);
    publish("c", storage_of(4), false);
    publish("b/part", gb_storage_ref(b->storage), false);
    kept = object_new("k", storage_of(8));
    kept->evict = GB_EVICT_KEEP;
    assert_int_equal(gb_registry_publish(&world.registry, kept, false, 0, NULL), 0);
    assert_int_equal(world.device.recency.bytes, 7);
    assert_int_equal(world.device.pinned, 8);
    gb_lease_end(&world.registry, lease(a, 0)); /* now b, c, a */
    assert_true(evict_oldest());
    assert_null(find("b"));
    assert_null(find("b/part"));
    expect_event(0, GB_EVENT_EVICTED, "b/part");
    expect_event(1, GB_EVENT_EVICTED, "b");
    gb_object_pin(find("c"), true);
    gb_object_pin(find("c"), true); /* once */
    assert_int_equal(world.device.pinned, 12);
    assert_true(evict_oldest());
    assert_null(find("a"));
    assert_false(evict_oldest());
    gb_object_pin(find("c"), false);
    assert_true(evict_oldest());
    assert_false(evict_oldest());
    assert_non_null(find("k"));
    assert_int_equal(world.device.evictions, 3);
    assert_int_equal(world.device.evicted_bytes, 7);
    end();
}

/* A lease or pin on one alias holds the storage that all share; an alias may replace its source. */
static void test_aliases(void **state)
{
    struct gb_object *a, *alias;
    struct gb_lease *reader;

    (void)state;
    begin();
    a = publish("a", storage_of(5), false);
    alias = publish("b", gb_storage_ref(a->storage), false);
    assert_int_equal(world.device.recency.count, 1);
    reader = lease(alias, 0);
    assert_false(evict_oldest());
    gb_object_pin(a, true);
    gb_lease_end(&world.registry, reader);
    assert_false(evict_oldest());
    gb_registry_unname(&world.registry, a, GB_EVENT_DELETED); /* its pin goes with its name */
    assert_int_equal(world.device.pinned, 0);
    assert_int_equal(alias->storage->references, 1);
    publish("b", gb_storage_ref(alias->storage), true);
    assert_int_equal(world.registry.objects, 1);
    assert_true(evict_oldest());
    end();
}

static void test_expiry(void **state)
{
    static const int64_t lives[] = {300, 100, 0, 200, 100};
    struct gb_error error;

    (void)state;
    begin();
    for (int i = 0; i < 5; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        struct gb_object *object = object_new(name, storage_of(1));

        object->ttl_ms = lives[i];
        assert_int_equal(gb_registry_publish(&world.registry, object, false, 1000, &error), 0);
    }
    gb_registry_expire(&world.registry, 1099);
    assert_int_equal(world.registry.objects, 5);
    gb_registry_expire(&world.registry, 1100);
    assert_int_equal(world.registry.objects, 3);
    assert_null(find("b"));
    assert_null(find("e"));
    gb_registry_unname(&world.registry, find("d"), GB_EVENT_DELETED);
    publish("a", storage_of(1), true); /* lives on: the time was the former one's */
    gb_registry_expire(&world.registry, UINT64_MAX);
    assert_int_equal(world.registry.objects, 2);
    assert_int_equal(world.registry.deadlines.count, 0);
    end();
}

static void test_unsealed(void **state)
{
    struct gb_object *object;
    struct gb_lease *writer;

    (void)state;
    begin();
    object = object_new("a", storage_of(10));
    writer = gb_lease_new(&world.registry, object, &world.holders[0], true, 0);
    assert_non_null(writer);
    writer->unsealed = gb_unsealed_new(false);
    assert_null(find("a"));
    gb_lease_end(&world.registry, writer); /* aborted */
    assert_int_equal(world.registry.objects, 0);
    object = object_new("a", storage_of(10));
    writer = gb_lease_new(&world.registry, object, &world.holders[0], true, 0);
    writer->unsealed = gb_unsealed_new(false);
    assert_int_equal(gb_registry_publish(&world.registry, object, false, 0, NULL), 0);
    gb_lease_sealed(writer);
    assert_false(writer->write);
    assert_false(evict_oldest());
    gb_holder_end(&world.registry, &world.holders[0]);
    assert_true(evict_oldest());
    gb_object_discard(&world.registry, object_new("b", storage_of(1)));
    end();
}

static void test_no_memory(void **state)
{
    bool done = false;

    (void)state;
    for (size_t n = 1; !done; n++) {
        bool rendered = false; /* by json_write.c, whose blocks are not counted here */
        struct gb_storage *storage;
        struct gb_object *object;
        struct gb_error error;
        long blocks = failing_blocks;

        begin();
        storage = storage_of(10);
        failing_from(n, 1);
        object = gb_object_new(&world.registry, "a", 1, storage, world.user);
        if (!object) {
            gb_storage_unref(&world.store, storage);
        } else {
            int r = 0;

            if (gb_lease_new(&world.registry, object, &world.holders[0], true, 0)) {
                r = render_object(object, 1);
                rendered = r == 0;
                if (r == 0)
                    r = gb_registry_publish(&world.registry, object, false, 0, &error);
                done = r == 0 && failing_calls < n;
            } else {
                gb_object_discard(&world.registry, object);
            }
        }
        failing_from(0, 0);
        end();
        assert_int_equal(failing_blocks, blocks - rendered);
        assert_true(n < 50);
    }
}

/* ---- a model ---- */

struct model_object {
    bool alive, named, pinned, keep, spill;
    unsigned name, storage, leases, idle; /* leases in use, and others */
    uint64_t ends;                        /* 0: never */
    struct gb_object *real;
};

struct model_storage {
    uint64_t bytes, used; /* when last */
};

static struct {
    struct model_object objects[OBJECTS];
    struct model_storage storages[OBJECTS];
    struct {
        struct gb_lease *real;
        unsigned object;
        bool idle;
    } leases[LEASES];
    unsigned count, storage_count, lease_count;
    uint64_t now, uses;
} model;

/* Objects of a storage that hold it, and those that are named. */
static void weigh(unsigned storage, unsigned *holds, unsigned *named)
{
    *holds = *named = 0;
    for (unsigned i = 0; i < model.count; i++) {
        const struct model_object *object = &model.objects[i];

        if (!object->alive || object->storage != storage)
            continue;
        *holds += object->leases + object->pinned + (object->named && object->keep);
        *named += object->named;
    }
}

static unsigned idle_of(unsigned storage)
{
    unsigned idle = 0;

    for (unsigned i = 0; i < model.count; i++)
        idle += model.objects[i].storage == storage ? model.objects[i].idle : 0;
    return idle;
}

/* Whether an object of it is not to be dropped: then it stays, since there is no tier. */
static bool needed(unsigned storage)
{
    for (unsigned i = 0; i < model.count; i++)
        if (model.objects[i].named && model.objects[i].storage == storage &&
            (model.objects[i].keep || model.objects[i].spill))
            return true;
    return false;
}

/* The storage's last hold has gone or its first name has come: that is a use. */
static void used(unsigned storage, unsigned before)
{
    unsigned holds, named;

    weigh(storage, &holds, &named);
    if (before > 0 && holds == 0)
        model.storages[storage].used = ++model.uses;
}

static void model_lose_name(unsigned i)
{
    struct model_object *object = &model.objects[i];
    unsigned holds, named;

    bool before = needed(object->storage);

    weigh(object->storage, &holds, &named);
    object->named = object->pinned = false;
    object->ends = 0;
    object->alive = object->leases + object->idle > 0;
    used(object->storage, holds);
    if (before && !needed(object->storage)) /* it enters the order of what may be dropped */
        model.storages[object->storage].used = ++model.uses;
}

static int model_find(unsigned name)
{
    for (unsigned i = 0; i < model.count; i++)
        if (model.objects[i].named && model.objects[i].name == name)
            return (int)i;
    return -1;
}

static const char *name_of(unsigned name)
{
    static const char *const names[NAMES] = {"a", "ab", "b", "b/c", "b/d", "c"};

    return names[name];
}

static void random_publish(struct test_random *random)
{
    struct model_object *object = &model.objects[model.count];
    int source = model_find(test_random_below(random, NAMES)), former;
    bool alias = source >= 0 && test_random_below(random, 3) == 0;
    unsigned before, named;
    struct gb_object *real;
    struct gb_error error;

    object->name = test_random_below(random, NAMES);
    object->keep = test_random_below(random, 8) == 0;
    object->spill = !object->keep && test_random_below(random, 6) == 0;
    object->storage = alias ? model.objects[source].storage : model.storage_count;
    if (!alias)
        model.storages[model.storage_count++].bytes = 1 + test_random_below(random, 1000);
    former = model_find(object->name);
    real = object_new(name_of(object->name),
                      alias ? gb_storage_ref(model.objects[source].real->storage)
                            : storage_of(model.storages[object->storage].bytes));
    real->evict = object->keep ? GB_EVICT_KEEP : object->spill ? GB_EVICT_SPILL : GB_EVICT_DROP;
    real->ttl_ms = test_random_below(random, 3) == 0 ? 1 + test_random_below(random, 50) : 0;
    if (former >= 0 && test_random_below(random, 3) == 0) {
        assert_int_equal(gb_registry_publish(&world.registry, real, false, model.now, &error),
                         GPUBUF_E_EXISTS);
        gb_object_discard(&world.registry, real);
        if (!alias)
            model.storage_count--;
        memset(object, 0, sizeof(*object));
        return;
    }
    assert_int_equal(gb_registry_publish(&world.registry, real, true, model.now, &error), 0);
    weigh(object->storage, &before, &named);
    object->alive = object->named = true;
    object->real = real;
    object->ends = real->ttl_ms ? model.now + (uint64_t)real->ttl_ms : 0;
    if (!alias) /* it enters as the most recently used */
        model.storages[object->storage].used = ++model.uses;
    model.count++;
    if (former >= 0)
        model_lose_name((unsigned)former);
}

static void random_evict(void)
{
    int oldest = -1;

    for (unsigned i = 0; i < model.storage_count; i++) {
        unsigned holds, named;

        weigh(i, &holds, &named);
        if (named + idle_of(i) > 0 && holds == 0 && !needed(i) &&
            (oldest < 0 || model.storages[i].used < model.storages[oldest].used))
            oldest = (int)i;
    }
    assert_int_equal(evict_oldest(), oldest >= 0);
    for (unsigned i = 0; oldest >= 0 && i < model.count; i++)
        if (model.objects[i].named && model.objects[i].storage == (unsigned)oldest)
            model_lose_name(i);
}

static void random_lease(struct test_random *random)
{
    int i = model_find(test_random_below(random, NAMES));

    if (i < 0 || model.lease_count == LEASES)
        return;
    model.leases[model.lease_count].object = (unsigned)i;
    model.leases[model.lease_count].idle = false;
    model.leases[model.lease_count].real =
        lease(model.objects[i].real, (int)test_random_below(random, HOLDERS));
    gb_lease_slot(model.leases[model.lease_count++].real);
    model.objects[i].leases++;
}

static void random_release(struct test_random *random)
{
    unsigned which, before, named;
    struct model_object *object;

    if (model.lease_count == 0)
        return;
    which = test_random_below(random, model.lease_count);
    object = &model.objects[model.leases[which].object];
    weigh(object->storage, &before, &named);
    if (model.leases[which].idle)
        object->idle--;
    else
        object->leases--;
    gb_lease_end(&world.registry, model.leases[which].real);
    model.leases[which] = model.leases[--model.lease_count];
    object->alive = object->named || object->leases + object->idle > 0;
    used(object->storage, before);
}

static void random_keep(struct test_random *random)
{
    unsigned which, before, named;
    struct model_object *object;
    bool uses = test_random_below(random, 3) == 0;

    if (model.lease_count == 0)
        return;
    which = test_random_below(random, model.lease_count);
    object = &model.objects[model.leases[which].object];
    weigh(object->storage, &before, &named);
    if (model.leases[which].idle)
        object->idle--, object->leases++;
    if (uses) {
        gb_lease_used(&world.registry, model.leases[which].real);
        model.leases[which].idle = false;
        return;
    }
    gb_lease_idle(&world.registry, model.leases[which].real, model.now);
    model.leases[which].idle = true;
    object->idle++, object->leases--;
    weigh(object->storage, &before, &named);
    used(object->storage, before + 1);
}

static void random_pin(struct test_random *random)
{
    int i = model_find(test_random_below(random, NAMES));
    bool pin = test_random_below(random, 2);
    unsigned before, named;

    if (i < 0)
        return;
    gb_object_pin(model.objects[i].real, pin);
    weigh(model.objects[i].storage, &before, &named);
    model.objects[i].pinned = pin;
    used(model.objects[i].storage, before);
}

static void random_expire(struct test_random *random)
{
    model.now += test_random_below(random, 20);
    gb_registry_expire(&world.registry, model.now);
    for (uint64_t at = 1; at <= model.now; at++) /* in the order of their ends */
        for (unsigned i = 0; i < model.count; i++)
            if (model.objects[i].named && model.objects[i].ends == at)
                model_lose_name(i);
}

static void compare(void)
{
    uint64_t alive = 0, leased = 0, pinned = 0, evictable = 0, stays = 0, versions = 0;

    for (unsigned i = 0; i < model.count; i++) {
        const struct model_object *object = &model.objects[i];

        if (!object->alive)
            continue;
        alive++;
        assert_int_equal(object->real->named, object->named);
        assert_int_equal(object->real->pinned, object->pinned);
        assert_int_equal(object->real->lease_count, object->leases + object->idle);
        assert_int_equal(object->real->idle_count, object->idle);
        assert_true(object->real->version > versions); /* made later, numbered higher */
        versions = object->real->version;
    }
    for (unsigned name = 0; name < NAMES; name++) {
        int i = model_find(name);

        assert_ptr_equal(find(name_of(name)), i < 0 ? NULL : model.objects[i].real);
    }
    for (unsigned i = 0; i < model.storage_count; i++) {
        unsigned holds, named, leases = 0, pins;

        weigh(i, &holds, &named);
        for (unsigned j = 0; j < model.count; j++)
            leases += model.objects[j].storage == i ? model.objects[j].leases : 0;
        pins = holds - leases;
        leased += leases ? model.storages[i].bytes : 0;
        pinned += pins ? model.storages[i].bytes : 0;
        named += idle_of(i);
        evictable += named && !holds && !needed(i) ? model.storages[i].bytes : 0;
        stays += named && !holds && needed(i) ? model.storages[i].bytes : 0;
    }
    assert_int_equal(world.registry.objects, alive);
    assert_int_equal(world.registry.leases.count, model.lease_count);
    assert_int_equal(world.device.leased, leased);
    assert_int_equal(world.device.pinned, pinned);
    assert_int_equal(world.device.recency.bytes, evictable);
    assert_int_equal(world.device.stay.bytes, stays);
}

static void test_random_operations(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct test_random random = {seed};

        begin();
        munmap((void *)(uintptr_t)give_page(0),
               GB_PAGE_SLOTS * 8); /* the others' leases have no slot */
        memset(&model, 0, sizeof(model));
        while (model.count < OBJECTS && model.storage_count < OBJECTS) {
            unsigned what = test_random_below(&random, 16);

            if (what < 5)
                random_publish(&random);
            else if (what < 8)
                random_lease(&random);
            else if (what < 10)
                random_release(&random);
            else if (what < 12)
                random_keep(&random);
            else if (what == 12)
                random_pin(&random);
            else if (what == 13)
                random_evict();
            else if (what == 14)
                random_expire(&random);
            else {
                int i = model_find(test_random_below(&random, NAMES));

                if (i >= 0) {
                    gb_registry_unname(&world.registry, model.objects[i].real, GB_EVENT_DELETED);
                    model_lose_name((unsigned)i);
                }
            }
            compare();
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_publish_replace_unname),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_outdate),
        cmocka_unit_test(test_eviction_order),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_unsealed),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_random_operations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
