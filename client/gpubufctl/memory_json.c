/* The content of memory, as JSON for programs. */
#include "memory.h"

static cJSON *place_json(const struct gb_inventory_place *place)
{
    cJSON *item = cJSON_CreateObject();

    const struct {
        const char *name;
        uint64_t value;
        bool of_tier;
    } figures[] = {
        {"capacity", place->capacity, true},
        {"free", place->free, true},
        {"used", place->used, true},
        {"retained", place->retained, false},
        {"pinned_by_clients", place->pinned_by_clients, false},
        {"clean", place->clean, true},
        {"leased", place->leased, false},
        {"pinned", place->pinned, false},
        {"evictable", place->evictable, false},
        {"leaving", place->leaving, false},
        {"spilled_bytes", place->spilled_bytes, false},
    };

    cJSON_AddStringToObject(item, "name", place->name);
    if (!place->is_tier)
        cJSON_AddStringToObject(item, "id", place->id);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        if (figures[i].of_tier || !place->is_tier)
            cJSON_AddNumberToObject(item, figures[i].name, (double)figures[i].value);
    return item;
}

static cJSON *user_json(const struct gb_inventory_user *user)
{
    cJSON *item = cJSON_CreateObject();

    cJSON_AddNumberToObject(item, "uid", (double)user->uid);
    cJSON_AddNumberToObject(item, "sessions", (double)user->sessions);
    cJSON_AddNumberToObject(item, "objects", (double)user->objects);
    cJSON_AddNumberToObject(item, "used", (double)user->used);
    cJSON_AddNumberToObject(item, "nameless", (double)user->nameless);
    cJSON_AddNumberToObject(item, "held", (double)user->held);
    cJSON_AddNumberToObject(item, "text_bytes", (double)user->text_bytes);
    cJSON_AddNumberToObject(item, "open", (double)user->open);
    cJSON_AddNumberToObject(item, "kept", (double)user->kept);
    cJSON_AddNumberToObject(item, "in_flight", (double)user->in_flight);
    return item;
}

static cJSON *session_json(const struct gb_inventory_session *session)
{
    cJSON *item = cJSON_CreateObject();

    cJSON_AddNumberToObject(item, "session", (double)session->id);
    cJSON_AddNumberToObject(item, "pid", (double)session->pid);
    cJSON_AddNumberToObject(item, "uid", (double)session->uid);
    cJSON_AddStringToObject(item, "client", session->client);
    cJSON_AddNumberToObject(item, "leases", (double)session->leases);
    cJSON_AddNumberToObject(item, "holds", (double)session->held);
    cJSON_AddNumberToObject(item, "cached", (double)session->cached);
    cJSON_AddNumberToObject(item, "cached_bytes", (double)session->cached_bytes);
    cJSON_AddNumberToObject(item, "maps", (double)session->mapped);
    cJSON_AddNumberToObject(item, "pins", (double)session->pins);
    return item;
}

static cJSON *object_json(const struct gb_inventory_object *object)
{
    cJSON *item = cJSON_CreateObject();

    cJSON_AddStringToObject(item, "name", object->name);
    cJSON_AddNumberToObject(item, "version", (double)object->version);
    cJSON_AddNumberToObject(item, "bytes", (double)object->bytes);
    cJSON_AddStringToObject(item, "device", object->device);
    cJSON_AddStringToObject(item, "tier", object->tier);
    cJSON_AddNumberToObject(item, "idle_ms", (double)object->idle_ms);
    cJSON_AddNumberToObject(item, "leases", (double)object->leases);
    cJSON_AddStringToObject(item, "when_short", object->when_short);
    cJSON_AddNumberToObject(item, "uid", (double)object->uid);
    return item;
}

cJSON *gb_inventory_sessions_json(const struct gb_inventory *memory, size_t most)
{
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < memory->sessions_told && i < most; i++)
        cJSON_AddItemToArray(list, session_json(&memory->sessions[i]));
    return list;
}

cJSON *gb_inventory_json(const struct gb_inventory *memory, size_t most)
{
    cJSON *answer = cJSON_CreateObject(), *lists[2];

    cJSON_AddStringToObject(answer, "server", memory->server);
    cJSON_AddNumberToObject(answer, "uptime_ms", (double)memory->uptime_ms);
    lists[0] = cJSON_AddArrayToObject(answer, "devices");
    lists[1] = cJSON_AddArrayToObject(answer, "tiers");
    for (size_t i = 0; i < memory->place_count; i++)
        cJSON_AddItemToArray(lists[memory->places[i].is_tier], place_json(&memory->places[i]));
    lists[0] = cJSON_AddArrayToObject(answer, "objects");
    for (size_t i = 0; i < memory->objects_told && i < most; i++)
        cJSON_AddItemToArray(lists[0], object_json(&memory->objects[i]));
    cJSON_AddItemToObject(answer, "sessions", gb_inventory_sessions_json(memory, most));
    lists[0] = cJSON_AddArrayToObject(answer, "users");
    for (size_t i = 0; i < memory->users_told && i < most; i++)
        cJSON_AddItemToArray(lists[0], user_json(&memory->users[i]));
    return answer;
}
