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
    char id[64];
    bool is_tier;
    uint64_t capacity, free, used, retained, pinned_by_clients;
    uint64_t clean;              /* of used: it is elsewhere too, so that it can leave at once */
    uint64_t leased, pinned;     /* of used, may overlap */
    uint64_t evictable, leaving; /* of used */
    uint64_t spilled_bytes;
    uint64_t stays, objects; /* of used: nobody holds it, and no tier takes it; also spilled ones */
    uint64_t failures;
    char fault[256]; /* why it takes nothing; "": it does */
};

/* In the order of the words of top --sort. */
enum gb_inventory_order {
    GB_MEMORY_BY_SIZE,
    GB_MEMORY_BY_RECENT,
    GB_MEMORY_BY_IDLE,
    GB_MEMORY_ORDERS
};

struct gb_inventory {
    char server[64];
    int64_t uptime_ms;
    uint64_t session_count, object_count, lease_count;
    size_t place_count, more_places;
    struct gb_inventory_place places[GB_MEMORY_PLACES]; /* devices, then tiers */
    /*
     * Lists of JSON objects; NULL: not told yet.
     *   users     what counts towards a user's quotas: sessions, objects; on all devices used,
     *             nameless and held; text_bytes; descriptors: open, kept, in_flight. The one with
     *             most bytes first.
     *   sessions  that hold or map something: leases and the bytes of their objects (holds), those
     *             that it has at hand without using them (cached, cached_bytes), the bytes of the
     *             segments that it was given (maps), and those of them that could be freed if it
     *             had not mapped them (pins). The one that holds most first.
     *   objects   as `list` tells them, with the device's name, and "pinned" in when_short.
     */
    cJSON *users, *sessions, *objects;
    bool truncated;  /* there are more leases than one answer tells */
    uint64_t listed; /* objects that were looked at */
};

/* A zeroed struct is empty. */
void gb_inventory_end(struct gb_inventory *memory);

/* Take in an answer; false if it makes no sense. */
bool gb_inventory_read_stats(struct gb_inventory *memory, const cJSON *stats);
bool gb_inventory_read_leases(struct gb_inventory *memory, const cJSON *leases);
/* Takes in one page of `list` after the other, and its objects out of it; only the first `keep` of
   them in that order stay. */
bool gb_inventory_read_page(struct gb_inventory *memory, cJSON *page, enum gb_inventory_order order,
                            size_t keep);
/* To be called after the last page: puts the objects into that order. */
void gb_inventory_sort(struct gb_inventory *memory, enum gb_inventory_order order, size_t keep);

/* Moves the objects that `from` has to *memory. */
void gb_inventory_move_objects(struct gb_inventory *memory, struct gb_inventory *from);

/* As JSON for programs, each list cut to `most` entries; to be deleted with cJSON_Delete. */
cJSON *gb_inventory_json(const struct gb_inventory *memory, size_t most);

#endif
