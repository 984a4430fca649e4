#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_print.h"

/* ---- devices and tiers ---- */

static uint64_t number_of(const cJSON *object, const char *key)
{
    int64_t value = gb_cjson_int_of(object, key, 0);

    return value < 0 ? 0 : (uint64_t)value;
}

static void read_place(struct gb_inventory_place *place, const cJSON *item)
{
    const char *id = gb_cjson_string_of(item, "id", "");
    const char *tier = gb_cjson_string_of(item, "tier", NULL);

    *place = (struct gb_inventory_place){
        .is_tier = tier != NULL,
        .capacity = number_of(item, "capacity"),
        .free = number_of(item, "free"),
        .used = number_of(item, "used"),
        .retained = number_of(item, "retained"),
        .pinned_by_clients = number_of(item, "pinned_by_clients"),
        .clean = number_of(item, "clean"),
        .leased = number_of(item, "leased"),
        .pinned = number_of(item, "pinned"),
        .evictable = number_of(item, "evictable"),
        .leaving = number_of(item, "leaving"),
        .spilled = number_of(item, "spilled"),
        .spilled_bytes = number_of(item, "spilled_bytes"),
        .failures = number_of(item, "failures"),
    };
    (void)snprintf(place->name, sizeof(place->name), "%s",
                   tier ? tier : gb_cjson_string_of(item, "alias", id));
    (void)snprintf(place->model, sizeof(place->model), "%s", gb_cjson_string_of(item, "name", ""));
    (void)snprintf(place->id, sizeof(place->id), "%s", id);
}

static void read_places(struct gb_inventory *memory, const cJSON *list)
{
    GB_CJSON_EACH(item, list) {
        if (memory->place_count < GB_MEMORY_PLACES)
            read_place(&memory->places[memory->place_count++], item);
        else
            memory->more_places++;
    }
}

/* ---- growing ---- */

/* An array with room for one more; NULL if memory is out, and then the former one stays. */
static void *with_room(void *array, size_t count, size_t *room, size_t size)
{
    size_t wanted = *room * 2 + 16;
    void *grown;

    if (count < *room)
        return array;
    grown = realloc(array, wanted * size);
    if (grown)
        *room = wanted;
    return grown;
}

/* ---- users ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct gb_inventory_user *one = a, *other = b;

    if (one->used != other->used)
        return one->used > other->used ? -1 : 1;
    if (one->held != other->held)
        return one->held > other->held ? -1 : 1;
    return one->uid < other->uid ? -1 : one->uid > other->uid;
}

/* How much of a quota the user has taken up. */
static uint64_t used_of(const cJSON *item, const char *key)
{
    return number_of(cJSON_GetObjectItemCaseSensitive(item, key), "used");
}

static bool read_users(struct gb_inventory *memory, const cJSON *list)
{
    GB_CJSON_EACH(item, list) {
        const cJSON *descriptors = cJSON_GetObjectItemCaseSensitive(item, "descriptors");
        struct gb_inventory_user *user;
        void *users =
            with_room(memory->users, memory->users_told, &memory->user_room, sizeof(*user));

        if (!users)
            return false;
        memory->users = users;
        user = &memory->users[memory->users_told++];
        *user = (struct gb_inventory_user){
            .uid = gb_cjson_int_of(item, "uid", -1),
            .sessions = used_of(item, "sessions"),
            .objects = used_of(item, "objects"),
            .text_bytes = used_of(item, "text_bytes"),
            .open = number_of(descriptors, "open"),
            .kept = number_of(descriptors, "kept"),
            .in_flight = number_of(descriptors, "in_flight"),
        };
        GB_CJSON_EACH(bytes, cJSON_GetObjectItemCaseSensitive(item, "bytes")) {
            user->used += number_of(bytes, "used");
            user->nameless += number_of(bytes, "nameless");
            user->held += number_of(bytes, "held");
        }
    }
    if (memory->users_told > 0)
        qsort(memory->users, memory->users_told, sizeof(*memory->users), by_bytes);
    return true;
}

bool gb_inventory_read_stats(struct gb_inventory *memory, const cJSON *stats)
{
    const cJSON *devices = cJSON_GetObjectItemCaseSensitive(stats, "devices");

    if (!cJSON_IsArray(devices))
        return false;
    (void)snprintf(memory->server, sizeof(memory->server), "%s",
                   gb_cjson_string_of(stats, "server", "gpubufd"));
    memory->uptime_ms = gb_cjson_int_of(stats, "uptime_ms", 0);
    memory->session_count = number_of(stats, "sessions");
    memory->object_count = number_of(stats, "names");
    memory->lease_count = number_of(stats, "leases");
    memory->kept_count = number_of(stats, "cached");
    memory->place_count = memory->more_places = 0;
    read_places(memory, devices);
    read_places(memory, cJSON_GetObjectItemCaseSensitive(stats, "tiers"));
    if (!read_users(memory, cJSON_GetObjectItemCaseSensitive(stats, "users")))
        memory->failed = true;
    return true;
}

/* ---- sessions ---- */

/* The session that an entry of `leases` belongs to. Entries are ordered by session, the oldest
   session first. */
static struct gb_inventory_session *session_of(struct gb_inventory *memory, const cJSON *item)
{
    uint64_t id = number_of(item, "session");
    struct gb_inventory_session *session;
    void *sessions;

    for (size_t i = memory->sessions_told; i-- > 0;)
        if (memory->sessions[i].id == id)
            return &memory->sessions[i];
    sessions = with_room(memory->sessions, memory->sessions_told, &memory->session_room,
                         sizeof(*memory->sessions));
    if (!sessions)
        return NULL;
    memory->sessions = sessions;
    session = &memory->sessions[memory->sessions_told];
    *session = (struct gb_inventory_session){
        .id = id,
        .pid = gb_cjson_int_of(item, "pid", -1),
        .uid = gb_cjson_int_of(item, "uid", -1),
        .client = strdup(gb_cjson_string_of(item, "client", "")),
    };
    if (!session->client)
        return NULL;
    memory->sessions_told++;
    return session;
}

static int by_weight(const void *a, const void *b)
{
    const struct gb_inventory_session *one = a, *other = b;

    if (one->held != other->held)
        return one->held > other->held ? -1 : 1;
    if (one->mapped != other->mapped)
        return one->mapped > other->mapped ? -1 : 1;
    return one->id < other->id ? -1 : one->id > other->id;
}

bool gb_inventory_read_leases(struct gb_inventory *memory, const cJSON *answer)
{
    const cJSON *leases = cJSON_GetObjectItemCaseSensitive(answer, "leases");

    if (!cJSON_IsArray(leases))
        return false;
    GB_CJSON_EACH(item, leases) {
        struct gb_inventory_session *session = session_of(memory, item);

        if (!session) {
            memory->failed = true;
            return true;
        }
        if (cJSON_HasObjectItem(item, "parked_ms"))
            continue;
        bool cached = cJSON_HasObjectItem(item, "cached_ms");
        *(cached ? &session->cached : &session->leases) += 1;
        *(cached ? &session->cached_bytes : &session->held) += number_of(item, "bytes");
    }
    GB_CJSON_EACH(item, cJSON_GetObjectItemCaseSensitive(answer, "mapped")) {
        struct gb_inventory_session *session = session_of(memory, item);

        if (!session) {
            memory->failed = true;
            return true;
        }
        session->mapped += number_of(item, "bytes");
        session->pins += gb_cjson_bool_of(item, "retiring") ? number_of(item, "bytes") : 0;
    }
    memory->truncated = gb_cjson_bool_of(answer, "truncated");
    if (memory->sessions_told > 0)
        qsort(memory->sessions, memory->sessions_told, sizeof(*memory->sessions), by_weight);
    return true;
}

/* ---- objects ---- */

const char *gb_inventory_order_name(enum gb_inventory_order order)
{
    static const char *const names[] = {"size", "recent", "idle"};

    return names[order];
}

static int by_size(const void *a, const void *b)
{
    const struct gb_inventory_object *one = a, *other = b;

    if (one->bytes != other->bytes)
        return one->bytes > other->bytes ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int by_idle(const void *a, const void *b)
{
    const struct gb_inventory_object *one = a, *other = b;

    if ((one->leases == 0) != (other->leases == 0))
        return one->leases == 0 ? -1 : 1;
    if (one->idle_ms != other->idle_ms)
        return one->idle_ms > other->idle_ms ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int by_recent(const void *a, const void *b)
{
    const struct gb_inventory_object *one = a, *other = b;

    if ((one->leases == 0) != (other->leases == 0) || one->idle_ms != other->idle_ms)
        return by_idle(b, a);
    return strcmp(one->name, other->name);
}

void gb_inventory_sort(struct gb_inventory *memory, enum gb_inventory_order order, size_t keep)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_recent, by_idle};

    if (memory->objects_told == 0)
        return;
    qsort(memory->objects, memory->objects_told, sizeof(*memory->objects), orders[order]);
    for (size_t i = 0, k = memory->objects_told - 1; memory->reverse && i < k; i++, k--) {
        struct gb_inventory_object one = memory->objects[i];
        memory->objects[i] = memory->objects[k];
        memory->objects[k] = one;
    }
    while (memory->objects_told > keep)
        free(memory->objects[--memory->objects_told].name);
}

/* The object's fate when memory is short. */
static const char *when_short_of(const cJSON *item)
{
    static const char *const known[] = {"spills", "stays", "drops"};
    const char *told = gb_cjson_string_of(item, "when_short", "");

    if (gb_cjson_bool_of(item, "pinned"))
        return "pinned";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(told, known[i]) == 0)
            return known[i];
    return "?";
}

/* The name of the device with this id, if `stats` told it; else the id. */
static const char *device_name(const struct gb_inventory *memory, const char *id)
{
    for (size_t i = 0; i < memory->place_count; i++)
        if (!memory->places[i].is_tier && strcmp(memory->places[i].id, id) == 0)
            return memory->places[i].name;
    return id;
}

static bool add_object(struct gb_inventory *memory, const cJSON *item)
{
    struct gb_inventory_object *object;
    void *objects = with_room(memory->objects, memory->objects_told, &memory->object_room,
                              sizeof(*memory->objects));

    if (!objects)
        return false;
    memory->objects = objects;
    object = &memory->objects[memory->objects_told];
    *object = (struct gb_inventory_object){
        .name = strdup(gb_cjson_string_of(item, "name", "")),
        .when_short = when_short_of(item),
        .bytes = number_of(item, "bytes"),
        .version = number_of(item, "version"),
        .leases = number_of(item, "leases"),
        .idle_ms = gb_cjson_int_of(item, "idle_ms", 0),
        .created_ms = gb_cjson_int_of(item, "created_ms", 0),
        .uid = gb_cjson_int_of(item, "uid", -1),
    };
    if (!object->name)
        return false;
    (void)snprintf(object->device, sizeof(object->device), "%s",
                   device_name(memory, gb_cjson_string_of(item, "device", "")));
    (void)snprintf(object->tier, sizeof(object->tier), "%s", gb_cjson_string_of(item, "tier", ""));
    memory->objects_told++;
    return true;
}

bool gb_inventory_read_page(struct gb_inventory *memory, const cJSON *page,
                            enum gb_inventory_order order, size_t keep)
{
    const cJSON *objects = cJSON_GetObjectItemCaseSensitive(page, "objects");

    if (!cJSON_IsArray(objects))
        return false;
    GB_CJSON_EACH(item, objects) {
        if (!add_object(memory, item)) {
            memory->failed = true;
            return true;
        }
        memory->listed++;
    }
    if (memory->objects_told > 4 * keep)
        gb_inventory_sort(memory, order, keep);
    return true;
}

void gb_inventory_end(struct gb_inventory *memory)
{
    for (size_t i = 0; i < memory->sessions_told; i++)
        free(memory->sessions[i].client);
    for (size_t i = 0; i < memory->objects_told; i++)
        free(memory->objects[i].name);
    free(memory->users);
    free(memory->sessions);
    free(memory->objects);
    *memory = (struct gb_inventory){.place_count = 0};
}
