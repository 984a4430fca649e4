#include "client/peer/base/seldom.h"

enum { WHILE_MS = 60000, SLOTS = 1024, TRIED = 8 };

/* A kind of one machine; all zero: none. */
struct slot {
    uint64_t key, since_ms;
    unsigned count; /* of lines since then, left out or not */
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

bool gb_peer_seldom(uint64_t now_ms, const char *who, const char *kind, unsigned most,
                    uint64_t *left_out)
{
    uint64_t key = hash(hash(UINT64_C(0xcbf29ce484222325), who), kind);
    struct slot *slot = find(key);

    *left_out = 0;
    if (!slot->key || now_ms - slot->since_ms >= WHILE_MS) {
        *left_out = slot->count > most ? slot->count - most : 0;
        *slot = (struct slot){.key = key, .since_ms = now_ms};
    }
    return slot->count++ < most;
}
