#include "client/gpubufctl/answers/memory.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/output/json_print.h"

/* ---- devices and tiers ---- */

static uint64_t number_of(const cJSON *object, const char *key)
{
    int64_t value = gb_cjson_int_of(object, key, 0);

    return value < 0 ? 0 : (uint64_t)value;
}

/* The figures of a place that `stats` tells, and which of them programs are told. */
enum { TELL_DEVICE = 1, TELL_TIER = 2, TELL_ALL = TELL_DEVICE | TELL_TIER };

static const struct {
    const char *name;
    size_t at; /* in a gb_inventory_place */
    unsigned tell;
} figures[] = {
#define FIGURE(name, tell)                                                                         \
    {                                                                                              \
#name, offsetof(struct gb_inventory_place, name), tell                                     \
    }
    FIGURE(capacity, TELL_ALL),
    FIGURE(free, TELL_ALL),
    FIGURE(used, TELL_ALL),
    FIGURE(retained, TELL_DEVICE),
    FIGURE(pinned_by_clients, TELL_DEVICE),
    FIGURE(clean, TELL_ALL),
    FIGURE(leased, TELL_DEVICE),
    FIGURE(pinned, TELL_DEVICE),
    FIGURE(evictable, TELL_DEVICE),
    FIGURE(leaving, TELL_DEVICE),
    FIGURE(spilled_bytes, TELL_DEVICE),
    FIGURE(stays, 0),
    FIGURE(objects, 0),
    FIGURE(failures, 0),
#undef FIGURE
};

enum { FIGURES = sizeof(figures) / sizeof(figures[0]) };

static void read_place(struct gb_inventory_place *place, const cJSON *item)
{
    const char *id = gb_cjson_string_of(item, "id", "");
    const char *tier = gb_cjson_string_of(item, "tier", NULL);

    *place = (struct gb_inventory_place){.is_tier = tier != NULL};
    for (size_t i = 0; i < FIGURES; i++)
        *(uint64_t *)((char *)place + figures[i].at) = number_of(item, figures[i].name);
    (void)snprintf(place->name, sizeof(place->name), "%s",
                   tier ? tier : gb_cjson_string_of(item, "alias", id));
    (void)snprintf(place->id, sizeof(place->id), "%s", id);
    (void)snprintf(place->fault, sizeof(place->fault), "%s", gb_cjson_string_of(item, "fault", ""));
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

/* ---- users ---- */

/* How much of a quota the user has taken up. */
static void add_used(cJSON *user, const cJSON *item, const char *key)
{
    const cJSON *quota = gb_cjson_member(item, key);

    cJSON_AddNumberToObject(user, key, (double)number_of(quota, "used"));
}

static cJSON *read_users(const cJSON *list)
{
    static const char *const bytes[] = {"used", "nameless", "held"};
    static const char *const descriptors[] = {"open", "kept", "in_flight"};
    cJSON *users = cJSON_CreateArray();

    GB_CJSON_EACH(item, list) {
        cJSON *user = cJSON_CreateObject();

        cJSON_AddItemToArray(users, user);
        cJSON_AddNumberToObject(user, "uid", (double)gb_cjson_int_of(item, "uid", -1));
        add_used(user, item, "sessions");
        add_used(user, item, "objects");
        for (size_t i = 0; i < 3; i++) {
            uint64_t sum = 0;
            GB_CJSON_EACH(device, gb_cjson_member(item, "bytes"))
                sum += number_of(device, bytes[i]);
            cJSON_AddNumberToObject(user, bytes[i], (double)sum);
        }
        add_used(user, item, "text_bytes");
        for (size_t i = 0; i < 3; i++)
            cJSON_AddNumberToObject(
                user, descriptors[i],
                (double)number_of(gb_cjson_member(item, "descriptors"), descriptors[i]));
    }
    gb_cjson_sort(users, "used", "held");
    return users;
}

bool gb_inventory_read_stats(struct gb_inventory *memory, const cJSON *stats)
{
    const cJSON *devices = gb_cjson_member(stats, "devices");

    if (!cJSON_IsArray(devices))
        return false;
    (void)snprintf(memory->server, sizeof(memory->server), "%s",
                   gb_cjson_string_of(stats, "server", "gpubufd"));
    memory->uptime_ms = gb_cjson_int_of(stats, "uptime_ms", 0);
    memory->session_count = number_of(stats, "sessions");
    memory->object_count = number_of(stats, "names");
    memory->lease_count = number_of(stats, "leases");
    memory->place_count = memory->more_places = 0;
    read_places(memory, devices);
    read_places(memory, gb_cjson_member(stats, "tiers"));
    cJSON_Delete(memory->users);
    memory->users = read_users(gb_cjson_member(stats, "users"));
    return true;
}

/* ---- sessions ---- */

/* The session that an entry of `leases` belongs to. Entries are ordered by session, the oldest
   session first. */
static cJSON *session_of(cJSON *sessions, const cJSON *item)
{
    uint64_t id = number_of(item, "session");

    cJSON *first = sessions ? sessions->child : NULL, *session = first;
    do {
        session = session ? session->prev : NULL; /* that of the first is the last */
        if (session && number_of(session, "session") == id)
            return session;
    } while (session != first);
    session = gb_cjson("{'session':%" PRIu64 ",'pid':%" PRId64 ",'uid':%" PRId64
                       ",'client':%s,'leases':0,'holds':0,'cached':0,'cached_bytes':0,'maps':0,"
                       "'pins':0}",
                       id, gb_cjson_int_of(item, "pid", -1), gb_cjson_int_of(item, "uid", -1),
                       gb_cjson_string_of(item, "client", ""));
    cJSON_AddItemToArray(sessions, session);
    return session;
}

static void add_to(cJSON *session, const char *key, uint64_t amount)
{
    cJSON *figure = gb_cjson_member(session, key);

    if (figure)
        cJSON_SetNumberValue(figure, figure->valuedouble + (double)amount);
}

bool gb_inventory_read_leases(struct gb_inventory *memory, const cJSON *answer)
{
    const cJSON *leases = gb_cjson_member(answer, "leases");

    if (!cJSON_IsArray(leases))
        return false;
    cJSON_Delete(memory->sessions);
    memory->sessions = cJSON_CreateArray();
    GB_CJSON_EACH(item, leases) {
        cJSON *session = session_of(memory->sessions, item);

        if (cJSON_HasObjectItem(item, "parked_ms"))
            continue;
        bool cached = cJSON_HasObjectItem(item, "cached_ms");
        add_to(session, cached ? "cached" : "leases", 1);
        add_to(session, cached ? "cached_bytes" : "holds", number_of(item, "bytes"));
    }
    GB_CJSON_EACH(item, gb_cjson_member(answer, "mapped")) {
        cJSON *session = session_of(memory->sessions, item);

        add_to(session, "maps", number_of(item, "bytes"));
        if (gb_cjson_bool_of(item, "retiring"))
            add_to(session, "pins", number_of(item, "bytes"));
    }
    memory->truncated = gb_cjson_bool_of(answer, "truncated");
    gb_cjson_sort(memory->sessions, "holds", "maps");
    return true;
}

/* ---- objects ---- */

void gb_inventory_move_objects(struct gb_inventory *memory, struct gb_inventory *from)
{
    cJSON_Delete(memory->objects);
    memory->objects = from->objects;
    memory->listed = from->listed;
    from->objects = NULL;
}

void gb_inventory_sort(struct gb_inventory *memory, enum gb_inventory_order order, size_t keep)
{
    static const char *const keys[][2] = {
        {"bytes", NULL}, {"-idle_ms", "leases"}, {"idle_ms", "-leases"}};

    gb_cjson_sort(memory->objects, keys[order][0], keys[order][1]);
    for (size_t told = (size_t)cJSON_GetArraySize(memory->objects); told > keep; told--)
        cJSON_Delete(cJSON_DetachItemViaPointer(memory->objects, memory->objects->child->prev));
}

/* The name of the device with this id, if `stats` told it; else the id. */
static const char *device_name(const struct gb_inventory *memory, const char *id)
{
    for (size_t i = 0; i < memory->place_count; i++)
        if (!memory->places[i].is_tier && strcmp(memory->places[i].id, id) == 0)
            return memory->places[i].name;
    return id;
}

static void set_text(cJSON *object, const char *key, const char *text)
{
    cJSON_ReplaceItemInObjectCaseSensitive(object, key, cJSON_CreateString(text));
}

bool gb_inventory_read_page(struct gb_inventory *memory, cJSON *page, enum gb_inventory_order order,
                            size_t keep)
{
    cJSON *objects = gb_cjson_member(page, "objects");

    if (!cJSON_IsArray(objects))
        return false;
    if (!memory->objects)
        memory->objects = cJSON_CreateArray();
    while (objects->child) {
        cJSON *object = cJSON_DetachItemViaPointer(objects, objects->child);

        set_text(object, "device", device_name(memory, gb_cjson_string_of(object, "device", "")));
        if (gb_cjson_bool_of(object, "pinned"))
            set_text(object, "when_short", "pinned");
        cJSON_AddItemToArray(memory->objects, object);
        memory->listed++;
    }
    if ((size_t)cJSON_GetArraySize(memory->objects) > 4 * keep)
        gb_inventory_sort(memory, order, keep);
    return true;
}

void gb_inventory_end(struct gb_inventory *memory)
{
    cJSON_Delete(memory->users);
    cJSON_Delete(memory->sessions);
    cJSON_Delete(memory->objects);
    *memory = (struct gb_inventory){.place_count = 0};
}

/* ---- for programs ---- */

static cJSON *place_json(const struct gb_inventory_place *place)
{
    cJSON *item = cJSON_CreateObject();

    cJSON_AddStringToObject(item, "name", place->name);
    if (!place->is_tier)
        cJSON_AddStringToObject(item, "id", place->id);
    for (size_t i = 0; i < FIGURES; i++)
        if (figures[i].tell & (place->is_tier ? TELL_TIER : TELL_DEVICE))
            cJSON_AddNumberToObject(
                item, figures[i].name,
                (double)*(const uint64_t *)((const char *)place + figures[i].at));
    return item;
}

/* The first `most` of a list, with these members; `keys` NULL: with all. */
static void add_first(cJSON *answer, const char *name, const cJSON *list, size_t most,
                      const char *const *keys)
{
    cJSON *first = cJSON_AddArrayToObject(answer, name);
    size_t told = 0;

    GB_CJSON_EACH(item, list) {
        if (told++ == most)
            return;
        cJSON *copy = cJSON_Duplicate(item, !keys);
        for (size_t i = 0; keys && keys[i]; i++)
            cJSON_AddItemToObject(copy, keys[i],
                                  cJSON_Duplicate(gb_cjson_member(item, keys[i]), true));
        cJSON_AddItemToArray(first, copy);
    }
}

cJSON *gb_inventory_json(const struct gb_inventory *memory, size_t most)
{
    static const char *const of_object[] = {"name",    "version", "bytes",      "device", "tier",
                                            "idle_ms", "leases",  "when_short", "uid",    NULL};
    cJSON *answer =
        gb_cjson("{'server':%s,'uptime_ms':%" PRId64 "}", memory->server, memory->uptime_ms);
    cJSON *lists[2];

    lists[0] = cJSON_AddArrayToObject(answer, "devices");
    lists[1] = cJSON_AddArrayToObject(answer, "tiers");
    for (size_t i = 0; i < memory->place_count; i++)
        cJSON_AddItemToArray(lists[memory->places[i].is_tier], place_json(&memory->places[i]));
    add_first(answer, "objects", memory->objects, most, of_object);
    add_first(answer, "sessions", memory->sessions, most, NULL);
    add_first(answer, "users", memory->users, most, NULL);
    return answer;
}
