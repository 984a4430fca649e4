/*
 * Growing and shrinking without a pause: the new slots are twice or half as many as the old ones,
 * and old slots move in order, a few with every insert and remove. So a hash belongs to exactly one
 * chain at any time: to the old table's if its slot there has not moved yet, else to the new
 * table's. New slots are written when the old ones move and never read before that, so they need no
 * clearing.
 */
#include "daemon/base/hash.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#define SLOTS_MIN 16u
/* Slots of the smaller table that move in one step. With 8, a resize is complete before the table
   can need the next one. */
#define STEP 8u

/* ---- hashing ---- */

/*
 * SipHash-c-d from its description: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast
 * short-input PRF", INDOCRYPT 2012, section 2.
 */

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_rounds(uint64_t v[4], unsigned rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static inline uint64_t load_le(const unsigned char *bytes, size_t count)
{
    uint64_t word = 0;

    while (count--)
        word = word << 8 | bytes[count];
    return word;
}

static inline uint64_t sip(unsigned c, unsigned d, const uint64_t key[2], const void *data,
                           size_t length)
{
    const unsigned char *bytes = data;
    uint64_t word, v[4];
    size_t left;

    v[0] = key[0] ^ UINT64_C(0x736f6d6570736575);
    v[1] = key[1] ^ UINT64_C(0x646f72616e646f6d);
    v[2] = key[0] ^ UINT64_C(0x6c7967656e657261);
    v[3] = key[1] ^ UINT64_C(0x7465646279746573);
    for (left = length; left >= 8; left -= 8, bytes += 8) {
        word = load_le(bytes, 8);
        v[3] ^= word;
        sip_rounds(v, c);
        v[0] ^= word;
    }
    word = (uint64_t)(length & 0xff) << 56 | load_le(bytes, left);
    v[3] ^= word;
    sip_rounds(v, c);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_rounds(v, d);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t gb_hash_sip(unsigned c, unsigned d, const uint64_t key[2], const void *data, size_t length)
{
    return sip(c, d, key, data, length);
}

static uint64_t secret[2];
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void draw_secret(void)
{
    /* getrandom() fills sixteen bytes or fails. Where a sandbox forbids it, take the random bytes
       that the kernel gave the process at its start. */
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        const void *start = (const void *)getauxval(AT_RANDOM);

        if (start)
            memcpy(secret, start, sizeof secret);
    }
}

uint64_t gb_hash_bytes(const void *data, size_t length)
{
    pthread_once(&secret_once, draw_secret);
    return sip(1, 3, secret, data, length);
}

uint64_t gb_hash_id(uint64_t id)
{
    /* The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a permutation in which every
       bit of the input reaches every bit of the output. */
    id += UINT64_C(0x9e3779b97f4a7c15);
    id = (id ^ id >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    id = (id ^ id >> 27) * UINT64_C(0x94d049bb133111eb);
    return id ^ id >> 31;
}

/* ---- the table ---- */

/* The one chain that holds a hash. The table has slots. */
static struct gb_hash_link **chain_of(const struct gb_hash_table *table, uint64_t hash)
{
    if (table->old_slots) {
        size_t smaller = table->mask < table->old_mask ? table->mask : table->old_mask;

        if ((hash & smaller) >= table->old_next)
            return &table->old_slots[hash & table->old_mask];
    }
    return &table->slots[hash & table->mask];
}

/* Moves a chain of the old table to the new one, whose slots for it are in use. */
static void move_chain(struct gb_hash_table *table, struct gb_hash_link *link)
{
    while (link) {
        struct gb_hash_link *next = link->next, **slot = &table->slots[link->hash & table->mask];

        link->next = *slot;
        *slot = link;
        link = next;
    }
}

static void move_some(struct gb_hash_table *table)
{
    bool growing = table->mask > table->old_mask;
    size_t smaller = growing ? table->old_mask : table->mask;

    if (!table->old_slots)
        return;
    for (unsigned i = 0; i < STEP; i++) {
        size_t at = table->old_next++;

        table->slots[at] = NULL;
        if (growing)
            table->slots[at + smaller + 1] = NULL;
        move_chain(table, table->old_slots[at]);
        if (!growing)
            move_chain(table, table->old_slots[at + smaller + 1]);
        if (at == smaller) {
            free(table->old_slots);
            table->old_slots = NULL;
            table->old_mask = table->old_next = 0;
            return;
        }
    }
}

/* Begins to move to `size` slots. If memory is out the table stays as it is, and gets slower. */
static void resize(struct gb_hash_table *table, size_t size)
{
    struct gb_hash_link **slots;

    if (size > SIZE_MAX / sizeof *slots || !(slots = malloc(size * sizeof *slots)))
        return;
    table->old_slots = table->slots;
    table->old_mask = table->mask;
    table->old_next = 0;
    table->slots = slots;
    table->mask = size - 1;
}

void gb_hash_end(struct gb_hash_table *table)
{
    free(table->slots);
    free(table->old_slots);
    memset(table, 0, sizeof *table);
}

void gb_hash_reserve(struct gb_hash_table *table, size_t count)
{
    size_t size = SLOTS_MIN;

    if (table->slots)
        return;
    while (size < count)
        size *= 2;
    table->slots = calloc(size, sizeof(struct gb_hash_link *));
    if (table->slots)
        table->mask = size - 1;
}

bool gb_hash_insert(struct gb_hash_table *table, struct gb_hash_link *link, uint64_t hash)
{
    struct gb_hash_link **slot;

    if (!table->slots)
        gb_hash_reserve(table, 0);
    if (!table->slots)
        return false;
    if (!table->old_slots && table->count > table->mask)
        resize(table, (table->mask + 1) * 2);
    move_some(table);
    slot = chain_of(table, hash);
    link->hash = hash;
    link->next = *slot;
    *slot = link;
    table->count++;
    return true;
}

void gb_hash_remove(struct gb_hash_table *table, struct gb_hash_link *link)
{
    struct gb_hash_link **at = chain_of(table, link->hash);

    while (*at != link) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = link->next;
    link->next = NULL;
    table->count--;
    if (!table->old_slots && table->mask >= SLOTS_MIN && table->count < (table->mask + 1) / 8)
        resize(table, (table->mask + 1) / 2);
    move_some(table);
}

struct gb_hash_link *gb_hash_first(const struct gb_hash_table *table, uint64_t hash)
{
    struct gb_hash_link *link;

    if (!table->slots)
        return NULL;
    for (link = *chain_of(table, hash); link; link = link->next)
        if (link->hash == hash)
            return link;
    return NULL;
}

struct gb_hash_link *gb_hash_next(const struct gb_hash_link *link)
{
    for (struct gb_hash_link *next = link->next; next; next = next->next)
        if (next->hash == link->hash)
            return next;
    return NULL;
}
