#include "client/peer/seldom.h"

enum { WHILE_MS = 60000, MOST = 20, SLOTS = 1024, TRIED = 8 };

/* A kind of one machine; all zero: none. */
struct slot {
    uint64_t key, since_ms;
    unsigned left_out;
};

static uint64_t hash(uint64_t sum, const char *text)
{
    for (; text && *text; text++)
        sum = (sum ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (sum ^ '\n') * UINT64_C(0x100000001b3);
}

/* The slot of that key, or one for it: the oldest of some. */
static struct slot *find(uint64_t key)
{
    static struct slot slots[SLOTS];
    struct slot *oldest = &slots[key % SLOTS];

    for (unsigned i = 0; i < TRIED; i++) {
        struct slot *slot = &slots[(key + i) % SLOTS];
        if (slot->key == key)
            return slot;
        if (slot->since_ms < oldest->since_ms)
            oldest = slot;
    }
    *oldest = (struct slot){0};
    return oldest;
}

bool gb_peer_seldom(uint64_t now_ms, const char *who, const char *kind, uint64_t *left_out)
{
    uint64_t key = hash(hash(UINT64_C(0xcbf29ce484222325), who), kind);
    struct slot *slot = find(key);

    if (slot->key && now_ms - slot->since_ms < WHILE_MS) {
        slot->left_out++;
        return false;
    }
    *left_out = slot->left_out;
    *slot = (struct slot){.key = key, .since_ms = now_ms};
    return true;
}

bool gb_peer_another(struct gb_peer_another *counted, uint64_t now_ms, const char *event)
{
    if (now_ms - counted->since_ms >= WHILE_MS) {
        if (counted->count > MOST)
            gb_log(GB_LOG_WARNING, "such lines were left out", GB_LOG_TEXT("of", event),
                   GB_LOG_NUMBER("left_out", counted->count - MOST));
        *counted = (struct gb_peer_another){.since_ms = now_ms};
    }
    return counted->count++ < MOST;
}
