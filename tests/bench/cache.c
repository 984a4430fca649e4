#include "cache.h"

#include "measure.h"

static int create_nothing(struct gb_device *device, enum gb_share share, uint64_t bytes,
                          struct gb_memory *memory, struct gb_error *error)
{
    *memory = (struct gb_memory){.write_fd = -1, .read_fd = -1};
    return 0;
}

static void destroy_nothing(struct gb_device *device, struct gb_memory *memory)
{
}

static const struct gb_device_ops nothing = {.create = create_nothing, .destroy = destroy_nothing};

void cache_begin(struct cache *cache, uint64_t capacity, size_t count)
{
    memset(cache, 0, sizeof(*cache));
    cache->device =
        (struct gb_device){.capacity = capacity, .granularity = (uint64_t)2 << 20, .id = "nothing"};
    cache->device.ops = &nothing;
    gb_store_init(&cache->store);
    cache->user = gb_user_get(&cache->store.users, 0);
    if (!cache->user)
        die("out of memory");
    cache->key = (struct gb_domain_key){.device = &cache->device, .mode = 0600};
    gb_list_init(&cache->recency);
    cache->objects = allocate(count, sizeof(*cache->objects));
    cache->count = count;
}

void cache_end(struct cache *cache)
{
    for (size_t i = 0; i < cache->count; i++)
        cache_drop(cache, i);
    gb_store_clear(&cache->store);
    gb_user_unref(cache->user);
    gb_store_end(&cache->store);
    free(cache->objects);
}

static void drop(struct cache *cache, struct cache_object *object)
{
    if (!object->storage)
        return;
    gb_storage_unref(&cache->store, object->storage);
    object->storage = NULL;
    gb_list_remove(&object->recent);
    cache->asked -= object->bytes;
    cache->changes++;
}

static void make_room(struct cache *cache)
{
    if (gb_list_empty(&cache->recency))
        die("a cache is full of nothing");
    drop(cache, GB_CONTAINER(cache->recency.next, struct cache_object, recent));
}

/* An object without bytes is in no order: evicting it would make no room. */
static void use(struct cache *cache, struct cache_object *object)
{
    gb_list_remove(&object->recent);
    if (object->bytes > 0)
        gb_list_append(&cache->recency, &object->recent);
}

void cache_create(struct cache *cache, size_t number, uint64_t bytes)
{
    struct cache_object *object = &cache->objects[number];
    struct gb_error error;
    struct gb_placing placing = {.store = &cache->store,
                                 .key = &cache->key,
                                 .user = cache->user,
                                 .bytes = bytes,
                                 .error = &error};
    int r;

    while ((r = gb_store_place(&placing)) == GB_PLACE_FULL)
        make_room(cache);
    if (r < 0)
        die("%s", error.message);
    drop(cache, object); /* the version before */
    object->storage = placing.storage;
    object->bytes = bytes;
    use(cache, object);
    cache->asked += bytes;
    cache->changes++;
}

bool cache_open(struct cache *cache, size_t number)
{
    struct cache_object *object = &cache->objects[number];

    if (!object->storage)
        return false;
    use(cache, object);
    return true;
}

void cache_drop(struct cache *cache, size_t number)
{
    drop(cache, &cache->objects[number]);
}
