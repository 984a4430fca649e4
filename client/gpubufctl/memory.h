/*
 * The content of memory, as the daemon's answers to `stats`, `leases` and `list` tell it: devices,
 * the tiers below them, users with what counts towards their quotas, sessions with what they hold,
 * objects in an order. Pure.
 */
#ifndef GB_MEMORY_H
#define GB_MEMORY_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_MEMORY_PLACES 32 /* devices, and tiers, that are told of */

/* A device or a tier; capacity = free + used + retained + pinned_by_clients. */
struct gb_inventory_place {
    char name[24]; /* "host", "cuda:0", "disk" */
    char model[64];
    char id[64];
    bool is_tier;
    uint64_t capacity, free, used, retained, pinned_by_clients;
    uint64_t clean;              /* of used: it is elsewhere too, so that it can leave at once */
    uint64_t leased, pinned;     /* of used, may overlap */
    uint64_t evictable, leaving; /* of used */
    uint64_t spilled, spilled_bytes;
    uint64_t failures;
};

/* A session that holds or maps something. */
struct gb_inventory_session {
    uint64_t id;
    int64_t pid, uid;
    char *client;
    uint64_t leases, held;         /* bytes of the objects of its leases */
    uint64_t cached, cached_bytes; /* leases that it has at hand without using them */
    uint64_t mapped;               /* bytes of the segments that it was given */
    uint64_t pins; /* of mapped: bytes that could be freed if this session had not mapped them */
};

/* A user, and what counts towards the user's quotas. */
struct gb_inventory_user {
    int64_t uid;
    uint64_t sessions, objects;
    uint64_t used, nameless, held;  /* bytes on all devices */
    uint64_t text_bytes;            /* of names and layouts */
    uint64_t open, kept, in_flight; /* descriptors */
};

struct gb_inventory_object {
    char *name;
    char device[24], tier[8];
    const char *when_short; /* static: "spills", "stays", "drops", "pinned" */
    uint64_t bytes, version, leases;
    int64_t idle_ms, created_ms, uid;
};

enum gb_inventory_order {
    GB_MEMORY_BY_SIZE,
    GB_MEMORY_BY_RECENT,
    GB_MEMORY_BY_IDLE,
    GB_MEMORY_ORDERS
};

struct gb_inventory {
    char server[64];
    int64_t uptime_ms;
    uint64_t session_count, object_count, lease_count, kept_count;
    size_t place_count, more_places;
    struct gb_inventory_place places[GB_MEMORY_PLACES]; /* devices, then tiers */
    struct gb_inventory_user *users;                    /* the user with most bytes first */
    size_t user_room, users_told;
    struct gb_inventory_session *sessions; /* who holds most first */
    size_t session_room, sessions_told;
    bool truncated; /* there are more leases than one answer tells */
    struct gb_inventory_object *objects;
    size_t objects_told, object_room;
    uint64_t listed; /* objects that were looked at */
    bool reverse; /* the order is reversed, so that its last ones are kept; set before the pages */
    bool failed;  /* memory is out */
};

/* A zeroed struct is empty. */
void gb_inventory_end(struct gb_inventory *memory);

/* Take in an answer; false if it makes no sense. */
bool gb_inventory_read_stats(struct gb_inventory *memory, const cJSON *stats);
bool gb_inventory_read_leases(struct gb_inventory *memory, const cJSON *leases);
/* Takes in one page of `list` after the other; only the first `keep` objects in that order stay. */
bool gb_inventory_read_page(struct gb_inventory *memory, const cJSON *page,
                            enum gb_inventory_order order, size_t keep);
/* To be called after the last page: puts the objects into that order. */
void gb_inventory_sort(struct gb_inventory *memory, enum gb_inventory_order order, size_t keep);

/* As JSON for programs, each list cut to `most` entries; to be deleted with cJSON_Delete. */
cJSON *gb_inventory_json(const struct gb_inventory *memory, size_t most);
cJSON *gb_inventory_sessions_json(const struct gb_inventory *memory, size_t most);

/* "size", "recent", "idle". */
const char *gb_inventory_order_name(enum gb_inventory_order order);

#endif
