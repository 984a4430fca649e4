#include "client/lib/objects/keep.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/lib/base/clock.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/request.h"

#define BUCKETS_MIN 256u
#define SWEEP_MS 1000
#define WAYS 8u /* places that a version may have in `seen` */

/* A version that was opened lately. */
struct seen {
    uint32_t tag;  /* a part of the hash of its name and number */
    uint32_t when; /* low bits of gb_coarse_ms() */
};

struct gb_keeper {
    size_t most;       /* leases that are kept */
    int64_t ms;        /* for which they are, without a use */
    struct seen *seen; /* sets of WAYS; NULL: nothing was opened yet */
    size_t set_count;
    bool asked;                    /* for the page, over this connection */
    const _Atomic uint64_t *slots; /* NULL: there is no page */
    size_t slot_count;
    const _Atomic uint32_t *pulse; /* a word that changes when the daemon dies … */
    uint32_t alive;                /* … and its value until then */
    struct gb_holding **buckets;   /* of those that are listed */
    size_t bucket_count, listed;
    struct gb_holding *newest, *oldest; /* those that are kept */
    size_t kept;
    int64_t swept_ms; /* when last */
};

int gb_keep_prepare(struct gpubuf_client *client, size_t most, int64_t ms)
{
    struct gb_keeper *keeper = calloc(1, sizeof(*keeper));

    if (!keeper)
        return GPUBUF_E_NO_MEMORY;
    keeper->most = most;
    keeper->ms = ms;
    client->keeper = keeper;
    return 0;
}

bool gb_keep_begun(const struct gpubuf_client *client)
{
    return client->keeper && client->keeper->slots;
}

static void unmap_page(struct gb_keeper *keeper)
{
    if (keeper->slots)
        (void)munmap((void *)(uintptr_t)keeper->slots, keeper->slot_count * sizeof(uint64_t));
    if (keeper->pulse)
        (void)munmap((void *)(uintptr_t)keeper->pulse, sizeof(uint32_t));
    keeper->slots = NULL;
    keeper->pulse = NULL;
}

void gb_keep_end(struct gpubuf_client *client)
{
    if (!client->keeper)
        return;
    unmap_page(client->keeper);
    free(client->keeper->buckets);
    free(client->keeper->seen);
    free(client->keeper);
}

/* Maps a file that cannot shrink: reading one that did would end in SIGBUS. NULL: it could, or it
   cannot be mapped. */
static const void *map(int fd, uint64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) < 0 || status.st_size < 0 ||
        (uint64_t)status.st_size < bytes)
        return NULL;
    const void *memory = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return NULL;
    return memory;
}

/* The pulse is the word of a robust mutex: its owner's number, to which the kernel adds a bit when
   the owner dies. */
static bool is_dead(uint32_t pulse)
{
    return pulse == 0 || (pulse & FUTEX_OWNER_DIED);
}

void gb_keep_map(struct gpubuf_client *client, int fd, uint64_t slots, int pulse_fd)
{
    struct gb_keeper *keeper = client->keeper;

    if (slots == 0 || slots > UINT32_MAX)
        return;
    if (!keeper->buckets) {
        keeper->buckets = calloc(BUCKETS_MIN, sizeof(struct gb_holding *));
        keeper->bucket_count = keeper->buckets ? BUCKETS_MIN : 0;
    }
    keeper->slot_count = (size_t)slots;
    keeper->slots = map(fd, slots * sizeof(uint64_t));
    keeper->pulse = map(pulse_fd, sizeof(uint32_t));
    if (keeper->pulse)
        keeper->alive = atomic_load_explicit(keeper->pulse, memory_order_acquire);
    if (!keeper->slots || !keeper->pulse || is_dead(keeper->alive) || !keeper->buckets)
        unmap_page(keeper);
    else
        gb_flusher_keep(client);
}

struct page {
    uint64_t fd, slots, pulse;
};

static int page_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    static const struct gb_field result_fields[] = {
        {.name = "cache", .type = GB_FIELD_OBJECT},
    };
    static const struct gb_field fields[] = {
        GB_FIELD(struct page, fd, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct page, slots, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct page, pulse, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gpubuf_client *client = request->client;
    struct gb_path result = {.key = "result"}, path = {.up = &result, .key = "cache"};
    struct gb_json cache = {NULL, 0};
    struct page page = {0};

    if (reply->refused)
        return reply->refused->code;
    int r = gb_json_read(reply->result, result_fields, 1, GB_UNKNOWN_IGNORE, &result, &client->pool,
                         &cache, NULL, error);
    if (r == 0 && !cache.text)
        return 0; /* the daemon has none to spare */
    if (r == 0)
        r = gb_json_read(cache, fields, 3, GB_UNKNOWN_IGNORE, &path, &client->pool, &page, NULL,
                         error);
    if (r == 0 && (page.fd >= reply->fd_count || page.pulse >= reply->fd_count))
        r = gb_fail(error, GPUBUF_E_PROTOCOL, "cache names a descriptor that did not come");
    if (r < 0)
        return r == GPUBUF_E_NO_MEMORY ? r : (error->code = GPUBUF_E_PROTOCOL);
    gb_keep_map(client, reply->fds[page.fd], page.slots, reply->fds[page.pulse]);
    return 0;
}

static void page_free(struct gb_request *request)
{
    free(request);
}

static const struct gb_request_type page_type = {.reply = page_reply, .free = page_free};

/* Asks for a page, once in a connection. Nobody waits for the answer: the request counts as
   canceled from the start. */
static void ask_for_page(struct gpubuf_client *client)
{
    struct gb_request *request = calloc(1, sizeof(*request));
    struct gb_error error;

    if (!request)
        return;
    client->keeper->asked = true;
    request->type = &page_type;
    request->canceled = request->once = true;
    gb_write_format(gb_request_begin(client, request, "hello", 0),
                    "{\"protocol\":%d,\"cache\":true}", GPUBUF_PROTOCOL);
    if (gb_request_send(client, request, NULL, 0, GB_RELEASES_LAST, &error) < 0)
        free(request);
}

/* ---- what was opened lately ---- */

/* Notes that a version is opened. Returns whether it was before, not long ago. */
static bool is_seen(struct gb_keeper *keeper, uint64_t hash)
{
    uint32_t now = (uint32_t)gb_coarse_ms(), tag = (uint32_t)(hash >> 32);

    if (!keeper->seen) {
        for (keeper->set_count = 1; keeper->set_count * WAYS < 2 * keeper->most;)
            keeper->set_count *= 2;
        keeper->seen = calloc(keeper->set_count * WAYS, sizeof(*keeper->seen));
    }
    if (!keeper->seen)
        return false;
    struct seen *set = &keeper->seen[(hash & (keeper->set_count - 1)) * WAYS], *oldest = set;
    for (struct seen *one = set; one < set + WAYS; one++) {
        if (one->tag == tag && now - one->when < keeper->ms) {
            one->when = now;
            return true;
        }
        if (now - one->when > now - oldest->when)
            oldest = one;
    }
    *oldest = (struct seen){tag, now};
    return false;
}

/* ---- by name ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const char *name, size_t length)
{
    uint64_t hash = length, word;

    for (; length > sizeof(word); name += sizeof(word), length -= sizeof(word)) {
        memcpy(&word, name, sizeof(word));
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, name, length);
    return mix(hash, word);
}

static struct gb_holding **bucket_of(const struct gb_keeper *keeper, uint64_t hash)
{
    return &keeper->buckets[hash & (keeper->bucket_count - 1)];
}

static struct gb_holding *find(const struct gb_keeper *keeper, const char *name, uint64_t hash)
{
    struct gb_holding *lease = *bucket_of(keeper, hash);

    while (lease && (lease->hash != hash || strcmp(lease->name, name) != 0))
        lease = lease->chain;
    return lease;
}

/* A table that cannot grow only gets slower. */
static void grow(struct gb_keeper *keeper)
{
    size_t count = keeper->bucket_count * 2;
    struct gb_holding **buckets = calloc(count, sizeof(struct gb_holding *));

    if (!buckets)
        return;
    for (size_t i = 0; i < keeper->bucket_count; i++) {
        struct gb_holding *lease = keeper->buckets[i];
        while (lease) {
            struct gb_holding *next = lease->chain, **bucket = &buckets[lease->hash & (count - 1)];
            lease->chain = *bucket;
            *bucket = lease;
            lease = next;
        }
    }
    free(keeper->buckets);
    keeper->buckets = buckets;
    keeper->bucket_count = count;
}

static void unlist(struct gb_keeper *keeper, struct gb_holding *lease)
{
    struct gb_holding **link = bucket_of(keeper, lease->hash);

    while (*link != lease)
        link = &(*link)->chain;
    *link = lease->chain;
    lease->listed = false;
    keeper->listed--;
}

/* ---- by use ---- */

static void unkeep(struct gb_keeper *keeper, struct gb_holding *lease)
{
    *(lease->newer ? &lease->newer->older : &keeper->newest) = lease->older;
    *(lease->older ? &lease->older->newer : &keeper->oldest) = lease->newer;
    lease->kept = false;
    keeper->kept--;
}

static void put_newest(struct gb_keeper *keeper, struct gb_holding *lease)
{
    lease->newer = NULL;
    lease->older = keeper->newest;
    *(keeper->newest ? &keeper->newest->newer : &keeper->oldest) = lease;
    keeper->newest = lease;
    lease->kept = true;
    keeper->kept++;
}

/* Tells the daemon that the lease is unused, now again if it was used since. False: memory is
   out. */
static bool tell_kept(struct gb_holding *lease)
{
    if (lease->told && !lease->used)
        return true;
    if (gb_reserve_releases(lease->client, 1) < 0)
        return false;
    gb_push_keep(lease->client, lease->id, false);
    lease->told = true;
    lease->used = false;
    return true;
}

/* Gives a kept lease back. Tells the daemon first of a use since it was last told: a release does
   not count as one. */
static void give_back(struct gb_keeper *keeper, struct gb_holding *lease)
{
    if (lease->told)
        (void)tell_kept(lease);
    unkeep(keeper, lease);
    unlist(keeper, lease);
    gb_holding_end(lease);
}

static bool is_current(const struct gb_keeper *keeper, const struct gb_holding *lease)
{
    return keeper->slots &&
           atomic_load_explicit(&keeper->slots[lease->slot - 1], memory_order_acquire) ==
               lease->id &&
           atomic_load_explicit(keeper->pulse, memory_order_acquire) == keeper->alive;
}

struct gpubuf_object *gb_keep_find(struct gpubuf_client *client, const char *name, uint64_t version)
{
    struct gb_keeper *keeper = client->keeper;

    if (!keeper || keeper->listed == 0)
        return NULL;
    struct gb_holding *lease = find(keeper, name, hash_of(name, strlen(name)));
    if (!lease)
        return NULL;
    if (!is_current(keeper, lease)) {
        if (lease->kept)
            give_back(keeper, lease);
        return NULL;
    }
    if (version && atomic_load(&lease->version) != version)
        return NULL;
    if (lease->kept) {
        unkeep(keeper, lease);
        lease->used = true;
    }
    lease->twice = true;
    struct gpubuf_object *root = lease->root;
    if (atomic_fetch_add_explicit(&root->references, 1, memory_order_relaxed) == 0)
        (void)atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
    return root;
}

bool gb_keep_take(struct gb_holding *lease)
{
    struct gpubuf_client *client = lease->client;
    struct gb_keeper *keeper = client->keeper;

    if (!lease->listed)
        return false;
    if (client->end.lost.code || client->link != GB_LINK_UP || !lease->twice ||
        atomic_load(&lease->ready) || !is_current(keeper, lease) ||
        (!lease->told && !tell_kept(lease))) {
        unlist(keeper, lease);
        return false;
    }
    lease->idle_since = gb_coarse_ms();
    put_newest(keeper, lease);
    while (keeper->kept > keeper->most)
        give_back(keeper, keeper->oldest);
    atomic_store_explicit(&client->keeps, keeper->kept > 0, memory_order_relaxed);
    /* The flusher has to hear of recalls, whatever the program does next. */
    if (!client->flush.listens)
        (void)gb_flusher_engage(client);
    return true;
}

void gb_keep_list(struct gb_holding *lease)
{
    struct gb_keeper *keeper = lease->client->keeper;

    if (!keeper || lease->id == 0)
        return;
    lease->hash = hash_of(lease->name, strlen(lease->name));
    lease->twice = is_seen(keeper, mix(lease->hash, atomic_load(&lease->version)));
    if (lease->twice && !keeper->asked)
        ask_for_page(lease->client);
    if (!keeper->slots || !lease->slot || lease->slot > keeper->slot_count)
        return;
    struct gb_holding *former = find(keeper, lease->name, lease->hash);
    if (former && former->kept)
        give_back(keeper, former);
    else if (former)
        unlist(keeper, former);
    if (keeper->listed >= keeper->bucket_count)
        grow(keeper);
    struct gb_holding **bucket = bucket_of(keeper, lease->hash);
    lease->chain = *bucket;
    *bucket = lease;
    lease->listed = true;
    keeper->listed++;
}

/* ---- what the daemon wants ---- */

/* The lease is in use: tells the daemon so; it is told anew when the lease is no longer used. */
static void tell_used(struct gpubuf_client *client, uint64_t id)
{
    struct gb_holding *lease = client->leases;

    while (lease && lease->id != id)
        lease = lease->next;
    if (!lease || gb_reserve_releases(client, 1) < 0)
        return; /* its release is on its way */
    gb_push_keep(client, id, true);
    lease->told = lease->used = false;
}

static void recall(struct gpubuf_client *client, uint64_t id)
{
    struct gb_holding *lease = client->keeper->oldest;

    while (lease && lease->id != id)
        lease = lease->newer;
    if (lease)
        give_back(client->keeper, lease);
    else
        tell_used(client, id);
}

void gb_keep_recall(struct gpubuf_client *client, struct gb_json params)
{
    struct gb_json leases = {NULL, 0};
    static const struct gb_field fields[] = {
        {.name = "leases", .type = GB_FIELD_ARRAY, .flags = GB_FIELD_REQUIRED},
    };
    struct gb_path path = {.key = "params"};
    struct gb_error error;

    if (!client->keeper)
        return;
    if (gb_json_read(params, fields, 1, GB_UNKNOWN_IGNORE, &path, &client->pool, &leases, NULL,
                     &error) < 0) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL, "the daemon sent a malformed leases.recall");
        return;
    }
    struct gb_json_walk walk = gb_json_walk(leases);
    struct gb_json key, item;
    while (gb_json_next(&walk, &key, &item)) {
        uint64_t id;
        if (gb_json_uint(item, 0, GB_LIMIT(integer), &path, &id, &error) == 0)
            recall(client, id);
    }
    gb_flush_releases(client);
}

static bool lies_in(const struct gb_holding *lease, uint64_t segment)
{
    for (size_t i = 0; i < lease->segment_count; i++) {
        if (lease->segments[i].import->segment == segment)
            return true;
    }
    return false;
}

void gb_keep_clear_segment(struct gpubuf_client *client, uint64_t segment)
{
    struct gb_holding *lease = client->keeper ? client->keeper->oldest : NULL;

    while (lease) {
        struct gb_holding *next = lease->newer;
        if (lies_in(lease, segment))
            give_back(client->keeper, lease);
        lease = next;
    }
}

void gb_keep_sweep(struct gpubuf_client *client)
{
    struct gb_keeper *keeper = client->keeper;
    int64_t now = gb_coarse_ms();

    if (!keeper || now - keeper->swept_ms < SWEEP_MS)
        return;
    keeper->swept_ms = now;
    while (keeper->oldest && now - keeper->oldest->idle_since >= keeper->ms)
        give_back(keeper, keeper->oldest);
    for (struct gb_holding *lease = keeper->oldest, *next; lease; lease = next) {
        next = lease->newer;
        if (is_current(keeper, lease))
            (void)tell_kept(lease);
        else
            give_back(keeper, lease);
    }
    atomic_store_explicit(&client->keeps, keeper->kept > 0, memory_order_relaxed);
}

void gb_keep_forget(struct gpubuf_client *client)
{
    struct gb_keeper *keeper = client->keeper;

    if (!keeper)
        return;
    unmap_page(keeper);
    keeper->asked = false;
    while (keeper->oldest)
        give_back(keeper, keeper->oldest);
    for (struct gb_holding *lease = client->leases; lease; lease = lease->next) {
        if (lease->listed)
            unlist(keeper, lease);
        lease->slot = 0;
    }
    atomic_store_explicit(&client->keeps, false, memory_order_relaxed);
}
