/*
 * Names, versions, leases, pins and the order of eviction: small cases, and every allocation
 * failing in turn. test_registry_model.c has the random operations.
 */
#include "tests/cases.h"

#include "registry_world.h"

/* ---- small cases ---- */

TEST_WITH(test_publish_replace_unname, set_up, tear_down)
{
    struct gb_object *first, *second, *third;
    struct gb_error error;
    struct gb_lease *reader;

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
}

TEST_WITH(test_leases, set_up, tear_down)
{
    struct gb_object *object;
    struct gb_lease *mine, *theirs;

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
}

/* ---- leases that are kept ---- */

static struct gb_lease *kept_lease(struct gb_object *object, int holder)
{
    struct gb_lease *one = lease(object, holder);

    gb_lease_slot(&world.registry, one, 5);
    gb_lease_idle(&world.registry, one, 5);
    return one;
}

/* A kept lease is no hold, and its storage is in the order; it is recalled once, and waited for,
   for a while. */
TEST_WITH(test_recall, NULL, tear_down)
{
    const _Atomic uint64_t *page;
    struct gb_lease *a, *b;

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

    assert_true(gb_storage_recall(&world.registry, b->object->storage, 1000, &(unsigned){0}));
    assert_int_equal(world.recalled, b->id);
    assert_true(gb_storage_recall(&world.registry, b->object->storage, 1099, &(unsigned){0}));
    assert_int_equal(world.recalls, 1);
    gb_lease_used(&world.registry, b); /* that was the answer */
    assert_false(gb_storage_recall(&world.registry, b->object->storage, 1099, &(unsigned){0}));
    assert_int_equal(world.device.leased, 2);
    gb_lease_idle(&world.registry, b, 1100);

    assert_true(gb_storage_recall(&world.registry, a->object->storage, 2000, &(unsigned){0}));
    assert_false(gb_storage_recall(&world.registry, a->object->storage, 2100, &(unsigned){0}));
    assert_true(world.holders[0].silent);
    assert_int_equal(world.device.leased, 1);
    assert_false(
        gb_storage_recall(&world.registry, b->object->storage, 2100, &(unsigned){0})); /* at once */
    assert_int_equal(world.recalls, 2);
    assert_int_equal(world.device.leased, 3);
    assert_false(evict_oldest());
    munmap((void *)(uintptr_t)page, GB_PAGE_SLOTS * 8);
}

/* However many a storage has, a try recalls a part of them and the next one goes on, to the end. */
/* RELIABILITY.md: Hostile clients 12 */
TEST_WITH(test_recall_in_parts, NULL, tear_down)
{
    enum { MANY = 1300, PART = 512 };
    struct gb_storage *storage;
    const _Atomic uint64_t *page;
    uint64_t changes;

    begin();
    storage = storage_of(1);
    page = give_page(0);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        kept_lease(publish(name, i ? gb_storage_ref(storage) : storage, false), 0);
    }
    for (unsigned told = 0; told < MANY;) {
        changes = world.device.changes;
        assert_true(gb_storage_recall(&world.registry, storage, 1000, &(unsigned){0}));
        told = told + PART < MANY ? told + PART : MANY;
        assert_int_equal(world.recalls, told);
        assert_int_equal(world.device.changes > changes, told < MANY); /* so there is a next try */
    }
    changes = world.device.changes;
    assert_true(gb_storage_recall(&world.registry, storage, 1050, &(unsigned){0}));
    assert_int_equal(world.device.changes, changes); /* it waits for answers */
    /* The one that has not answered in time has all of them in use, a part in each try, too. */
    assert_true(gb_storage_recall(&world.registry, storage, 1100, &(unsigned){0}));
    assert_int_equal(world.registry.idle_count, MANY - PART);
    assert_true(gb_storage_recall(&world.registry, storage, 1100, &(unsigned){0}));
    assert_false(gb_storage_recall(&world.registry, storage, 1100, &(unsigned){0}));
    assert_int_equal(world.recalls, MANY);
    assert_int_equal(world.registry.idle_count, 0);
    munmap((void *)(uintptr_t)page, GB_PAGE_SLOTS * 8);
}

/* A slot is empty before anybody is told that the name means something else, and a release of what
   is kept is no use. */
TEST_WITH(test_outdate, NULL, tear_down)
{
    const _Atomic uint64_t *pages[2];
    struct gb_lease *used, *kept;
    struct gb_object *first;
    unsigned slots[2];

    begin();
    for (int i = 0; i < 2; i++)
        pages[i] = give_page(i);
    first = publish("a", storage_of(1), false);
    used = lease(first, 0);
    gb_lease_slot(&world.registry, used, 5);
    kept = kept_lease(first, 1);
    slots[0] = used->slot - 1;
    slots[1] = kept->slot - 1;
    publish("b", storage_of(1), false);
    publish("a", storage_of(2), true);
    assert_int_equal(pages[0][slots[0]] | pages[1][slots[1]], 0);
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
    for (int i = 0; i < 2; i++)
        munmap((void *)(uintptr_t)pages[i], GB_PAGE_SLOTS * 8);
}

/* Least recently used first: a lease's end is a use. Pinned and kept ones stay; aliases go
   with it. */
TEST_WITH(test_eviction_order, set_up, tear_down)
{
    struct gb_object *a, *b, *kept;

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
    assert_int_equal(world.device.so_far.evictions, 3);
    assert_int_equal(world.device.so_far.evicted_bytes, 7);
}

/* A lease or pin on one alias holds the storage that all share; an alias may replace its source. */
TEST_WITH(test_aliases, set_up, tear_down)
{
    struct gb_object *a, *alias;
    struct gb_lease *reader;

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
}

TEST_WITH(test_expiry, NULL, tear_down)
{
    static const int64_t lives[] = {300, 100, 0, 200, 100};
    struct gb_error error;

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
}

TEST_WITH(test_unsealed, set_up, tear_down)
{
    struct gb_object *object;
    struct gb_lease *writer;

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
}

TEST(test_no_memory)
{
    bool done = false;

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

RUN_TESTS(NULL, NULL)
