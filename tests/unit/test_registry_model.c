/*
 * Names, leases, pins and the order of eviction: random operations against a model that keeps
 * everything in arrays.
 */
#include "tests/cases.h"

#include "random.h"
#include "registry_world.h"

enum { NAMES = 6, LEASES = 64 };

struct model_object {
    bool alive, named, pinned, keep, spill;
    unsigned older; /* versions that its name keeps, while it is current */
    unsigned name, storage, leases, idle, parked; /* leases in use, and others */
    uint64_t ends;                                /* 0: never */
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
        bool idle, parked;
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

/* Leases that are no holds. */
static unsigned idle_of(unsigned storage)
{
    unsigned idle = 0;

    for (unsigned i = 0; i < model.count; i++)
        if (model.objects[i].storage == storage)
            idle += model.objects[i].idle + model.objects[i].parked;
    return idle;
}

/* Whether an object of it is not to be dropped, or is claimed: then it stays, since there is no
   tier. */
static bool needed(unsigned storage)
{
    for (unsigned i = 0; i < model.count; i++)
        if (model.objects[i].storage == storage &&
            (model.objects[i].parked > 0 ||
             (model.objects[i].named && (model.objects[i].keep || model.objects[i].spill))))
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
    object->alive = object->leases + object->idle + object->parked > 0;
    used(object->storage, holds);
    if (before && !needed(object->storage)) /* it enters the order of what may be dropped */
        model.storages[object->storage].used = ++model.uses;
}

/* The last is current. */
static int model_find(unsigned name)
{
    for (unsigned i = model.count; i-- > 0;)
        if (model.objects[i].named && model.objects[i].name == name)
            return (int)i;
    return -1;
}

static int model_oldest(unsigned name, unsigned *older)
{
    int oldest = -1;

    *older = 0;
    for (unsigned i = model.count; i-- > 0;)
        if (model.objects[i].named && model.objects[i].name == name) {
            *older += oldest >= 0;
            oldest = (int)i;
        }
    return oldest;
}

/* The oldest lose the name first. */
static void model_keep_older(unsigned name, unsigned keep)
{
    unsigned older;
    int oldest;

    while ((oldest = model_oldest(name, &older)) >= 0 && older > keep)
        model_lose_name((unsigned)oldest);
}

/* A current version takes the older ones along, unless it is withdrawn. */
static void model_unname(unsigned i, bool withdrawn)
{
    if (!withdrawn && model_find(model.objects[i].name) == (int)i)
        model_keep_older(model.objects[i].name, 0);
    model_lose_name(i);
}

/* With the name, one of its versions or, at random, its current one. */
static int random_version(struct test_random *random, unsigned name)
{
    int i = model_find(name);

    for (int other = i; other >= 0; other--)
        if (model.objects[other].named && model.objects[other].name == name &&
            test_random_below(random, 3) == 0)
            return other;
    return i;
}

static const char *name_of(unsigned name)
{
    static const char *const names[NAMES] = {"a", "ab", "b", "b/c", "b/d", "c"};

    return names[name];
}

static void random_publish(struct test_random *random)
{
    struct model_object *object = &model.objects[model.count];
    int source = random_version(random, test_random_below(random, NAMES)), former;
    bool alias = source >= 0 && test_random_below(random, 3) == 0;
    unsigned before, named;
    struct gb_object *real;
    struct gb_error error;

    object->name = test_random_below(random, NAMES);
    object->keep = test_random_below(random, 8) == 0;
    object->spill = !object->keep && test_random_below(random, 6) == 0;
    object->older = test_random_below(random, 2) ? test_random_below(random, 4) : 0;
    object->storage = alias ? model.objects[source].storage : model.storage_count;
    if (!alias)
        model.storages[model.storage_count++].bytes = 1 + test_random_below(random, 1000);
    former = model_find(object->name);
    real = object_new(name_of(object->name),
                      alias ? gb_storage_ref(model.objects[source].real->storage)
                            : storage_of(model.storages[object->storage].bytes));
    real->evict = object->keep ? GB_EVICT_KEEP : object->spill ? GB_EVICT_SPILL : GB_EVICT_DROP;
    real->keep = object->older;
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
    if (former < 0)
        return;
    weigh(model.objects[former].storage, &before, &named);
    model.objects[former].pinned = false;
    used(model.objects[former].storage, before);
    model_keep_older(object->name, object->older);
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
    gb_registry_sweep(&world.registry);
    for (int current = 0; current < 2; current++)
        for (unsigned i = 0; oldest >= 0 && i < model.count; i++)
            if (model.objects[i].named && model.objects[i].storage == (unsigned)oldest &&
                current == (model_find(model.objects[i].name) == (int)i))
                model_unname(i, false);
}

static void random_lease(struct test_random *random)
{
    int i = random_version(random, test_random_below(random, NAMES));

    if (i < 0 || model.lease_count == LEASES)
        return;
    model.leases[model.lease_count].object = (unsigned)i;
    model.leases[model.lease_count].idle = model.leases[model.lease_count].parked = false;
    model.leases[model.lease_count].real =
        lease(model.objects[i].real, (int)test_random_below(random, HOLDERS));
    gb_lease_slot(&world.registry, model.leases[model.lease_count++].real, model.now);
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
    bool claimed = needed(object->storage);
    if (model.leases[which].idle)
        object->idle--;
    else if (model.leases[which].parked)
        object->parked--;
    else
        object->leases--;
    gb_lease_end(&world.registry, model.leases[which].real);
    model.leases[which] = model.leases[--model.lease_count];
    object->alive = object->named || object->leases + object->idle + object->parked > 0;
    used(object->storage, before);
    if (claimed && !needed(object->storage))
        model.storages[object->storage].used = ++model.uses;
}

static void random_keep(struct test_random *random)
{
    unsigned which, before, named;
    struct model_object *object;
    bool uses = test_random_below(random, 3) == 0;

    if (model.lease_count == 0)
        return;
    which = test_random_below(random, model.lease_count);
    if (model.leases[which].parked)
        return;
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

static void random_park(struct test_random *random)
{
    unsigned which, before, named;
    struct model_object *object;

    if (model.lease_count == 0)
        return;
    which = test_random_below(random, model.lease_count);
    object = &model.objects[model.leases[which].object];
    gb_lease_park(&world.registry, model.leases[which].real, model.now);
    if (model.leases[which].parked)
        return;
    weigh(object->storage, &before, &named);
    if (model.leases[which].idle)
        object->idle--, before++;
    else
        object->leases--;
    model.leases[which].idle = false;
    model.leases[which].parked = true;
    object->parked++;
    used(object->storage, before);
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
                model_unname(i, false);
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
        assert_int_equal(object->real->lease_count, object->leases + object->idle + object->parked);
        assert_int_equal(object->real->parked_count, object->parked);
        assert_int_equal(object->real->idle_count, object->idle);
        assert_true(object->real->version > versions); /* made later, numbered higher */
        versions = object->real->version;
    }
    for (unsigned name = 0; name < NAMES; name++) {
        int i = model_find(name);

        struct gb_object *real = find(name_of(name));

        assert_ptr_equal(real, i < 0 ? NULL : model.objects[i].real);
        for (; i >= 0; i--) { /* the ring has all versions that have the name, newest first */
            if (!model.objects[i].named || model.objects[i].name != name)
                continue;
            assert_ptr_equal(real, model.objects[i].real);
            real = gb_object_older(real);
        }
        for (; real; real = gb_object_older(real)) /* and then what is held */
            assert_true(!real->named && real->lease_count > 0);
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

TEST(test_random_operations)
{
    for (unsigned seed = 0; seed < 8; seed++) {
        struct test_random random = {seed};

        begin();
        munmap((void *)(uintptr_t)give_page(0),
               GB_PAGE_SLOTS * 8); /* the others' leases have no slot */
        memset(&model, 0, sizeof(model));
        while (model.count < OBJECTS && model.storage_count < OBJECTS) {
            unsigned what = test_random_below(&random, 18);

            if (what < 5)
                random_publish(&random);
            else if (what < 8)
                random_lease(&random);
            else if (what < 10)
                random_release(&random);
            else if (what < 12)
                random_keep(&random);
            else if (what > 15)
                random_park(&random);
            else if (what == 12)
                random_pin(&random);
            else if (what == 13)
                random_evict();
            else if (what == 14)
                random_expire(&random);
            else {
                int i = random_version(&random, test_random_below(&random, NAMES));
                bool withdrawn = test_random_below(&random, 2);

                if (i >= 0) {
                    gb_registry_unname(&world.registry, model.objects[i].real,
                                       withdrawn ? GB_EVENT_WITHDRAWN : GB_EVENT_DELETED);
                    model_unname((unsigned)i, withdrawn);
                }
            }
            compare();
        }
        end();
    }
}

RUN_TESTS(NULL, NULL)
