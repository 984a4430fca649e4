#include "client/lib/objects/cached.h"

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
#define SWEEP_MS (GB_FLUSHER_SWEEP_MS - 100) /* so that each look of the flusher is a sweep */
#define WAYS 8u                              /* places that a version may have in `seen` */
#define FRESH_MS 1000   /* a full cache is too small if its oldest lease was used since */
#define ADMIT_EVERY 16u /* then one newcomer of these takes the oldest's place */

/* A version that was opened lately. */
struct seen {
    uint32_t tag;  /* a part of the hash of its name and number */
    uint32_t when; /* low bits of gb_coarse_ms() */
};

struct gb_cached {
    size_t most;       /* leases that are cached */
    int64_t ms;        /* for which they are, without a use */
    struct seen *seen; /* sets of WAYS; NULL: nothing was opened yet */
    size_t set_count;
    bool asked;                    /* for the page, over this connection */
    const _Atomic uint64_t *slots; /* NULL: there is no page */
    size_t slot_count;
    const _Atomic uint32_t *pulse;    /* a word that changes when the daemon dies … */
    uint32_t alive;                   /* … and its value until then */
    struct gb_client_lease **buckets; /* of those that are listed */
    size_t bucket_count, listed;
    struct gb_client_lease *newest, *oldest; /* those that are cached */
    size_t count;
    unsigned surplus; /* newcomers that found it full */
    int64_t swept_ms; /* when last */
};

int gb_cached_prepare(struct gpubuf_client *client, size_t most, int64_t ms)
{
    struct gb_cached *cached = calloc(1, sizeof(*cached));

    if (!cached)
        return GPUBUF_E_NO_MEMORY;
    cached->most = most;
    cached->ms = ms;
    client->cached = cached;
    return 0;
}

bool gb_cached_begun(const struct gpubuf_client *client)
{
    return client->cached && client->cached->slots;
}

static void unmap_page(struct gb_cached *cached)
{
    if (cached->slots)
        (void)munmap((void *)(uintptr_t)cached->slots, cached->slot_count * sizeof(uint64_t));
    if (cached->pulse)
        (void)munmap((void *)(uintptr_t)cached->pulse, sizeof(uint32_t));
    cached->slots = NULL;
    cached->pulse = NULL;
}

void gb_cached_end(struct gpubuf_client *client)
{
    if (!client->cached)
        return;
    unmap_page(client->cached);
    free(client->cached->buckets);
    free(client->cached->seen);
    free(client->cached);
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

void gb_cached_map(struct gpubuf_client *client, int fd, uint64_t slots, int pulse_fd)
{
    struct gb_cached *cached = client->cached;

    if (slots == 0 || slots > UINT32_MAX)
        return;
    if (!cached->buckets) {
        cached->buckets = calloc(BUCKETS_MIN, sizeof(struct gb_client_lease *));
        cached->bucket_count = cached->buckets ? BUCKETS_MIN : 0;
    }
    cached->slot_count = (size_t)slots;
    cached->slots = map(fd, slots * sizeof(uint64_t));
    cached->pulse = map(pulse_fd, sizeof(uint32_t));
    if (cached->pulse)
        cached->alive = atomic_load_explicit(cached->pulse, memory_order_acquire);
    if (!cached->slots || !cached->pulse || is_dead(cached->alive) || !cached->buckets)
        unmap_page(cached);
    else
        gb_flusher_watch(client);
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
    gb_cached_map(client, reply->fds[page.fd], page.slots, reply->fds[page.pulse]);
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
    client->cached->asked = true;
    request->type = &page_type;
    request->canceled = request->once = true;
    gb_write_format(gb_request_begin(client, request, "hello", 0),
                    "{\"protocol\":%d,\"cache\":true}", GPUBUF_PROTOCOL);
    if (gb_request_send(client, request, NULL, 0, GB_RELEASES_LAST, &error) < 0)
        free(request);
}

/* ---- what was opened lately ---- */

/* Notes that a version is opened. Returns whether it was before, not long ago. */
static bool is_seen(struct gb_cached *cached, uint64_t hash)
{
    uint32_t now = (uint32_t)gb_coarse_ms(), tag = (uint32_t)(hash >> 32);

    if (!cached->seen) {
        for (cached->set_count = 1; cached->set_count * WAYS < 2 * cached->most;)
            cached->set_count *= 2;
        cached->seen = calloc(cached->set_count * WAYS, sizeof(*cached->seen));
    }
    if (!cached->seen)
        return false;
    struct seen *set = &cached->seen[(hash & (cached->set_count - 1)) * WAYS], *oldest = set;
    for (struct seen *one = set; one < set + WAYS; one++) {
        if (one->tag == tag && now - one->when < cached->ms) {
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

static struct gb_client_lease **bucket_of(const struct gb_cached *cached, uint64_t hash)
{
    return &cached->buckets[hash & (cached->bucket_count - 1)];
}

static struct gb_client_lease *find(const struct gb_cached *cached, const char *name, uint64_t hash)
{
    struct gb_client_lease *lease = *bucket_of(cached, hash);

    while (lease && (lease->hash != hash || strcmp(lease->name, name) != 0))
        lease = lease->chain;
    return lease;
}

/* A table that cannot grow only gets slower. */
static void grow(struct gb_cached *cached)
{
    size_t count = cached->bucket_count * 2;
    struct gb_client_lease **buckets = calloc(count, sizeof(struct gb_client_lease *));

    if (!buckets)
        return;
    for (size_t i = 0; i < cached->bucket_count; i++) {
        struct gb_client_lease *lease = cached->buckets[i];
        while (lease) {
            struct gb_client_lease *next = lease->chain,
                                   **bucket = &buckets[lease->hash & (count - 1)];
            lease->chain = *bucket;
            *bucket = lease;
            lease = next;
        }
    }
    free(cached->buckets);
    cached->buckets = buckets;
    cached->bucket_count = count;
}

static void unlist(struct gb_cached *cached, struct gb_client_lease *lease)
{
    struct gb_client_lease **link = bucket_of(cached, lease->hash);

    while (*link != lease)
        link = &(*link)->chain;
    *link = lease->chain;
    lease->listed = false;
    cached->listed--;
}

/* ---- by use ---- */

static void uncache(struct gb_cached *cached, struct gb_client_lease *lease)
{
    *(lease->newer ? &lease->newer->older : &cached->newest) = lease->older;
    *(lease->older ? &lease->older->newer : &cached->oldest) = lease->newer;
    lease->cached = false;
    cached->count--;
}

static void append_newest(struct gb_cached *cached, struct gb_client_lease *lease)
{
    lease->newer = NULL;
    lease->older = cached->newest;
    *(cached->newest ? &cached->newest->newer : &cached->oldest) = lease;
    cached->newest = lease;
    lease->cached = true;
    cached->count++;
}

/* Tells the daemon that the lease is unused, now again if it was used since. False: memory is
   out. */
static bool report_cached(struct gb_client_lease *lease)
{
    if (lease->reported && !lease->used)
        return true;
    if (gb_reserve_releases(lease->client, 1) < 0)
        return false;
    gb_push_cached(lease->client, lease->id, false);
    lease->reported = true;
    lease->used = false;
    return true;
}

/* Releases a cached lease. Tells the daemon first of a use since it was last told: a release does
   not count as one. */
static void release(struct gb_cached *cached, struct gb_client_lease *lease)
{
    if (lease->reported)
        (void)report_cached(lease);
    uncache(cached, lease);
    unlist(cached, lease);
    gb_client_lease_end(lease);
}

static bool is_current(const struct gb_cached *cached, const struct gb_client_lease *lease)
{
    return cached->slots &&
           atomic_load_explicit(&cached->slots[lease->slot - 1], memory_order_acquire) ==
               lease->id &&
           atomic_load_explicit(cached->pulse, memory_order_acquire) == cached->alive;
}

struct gpubuf_object *gb_cached_find(struct gpubuf_client *client, const char *name,
                                     uint64_t version)
{
    struct gb_cached *cached = client->cached;

    if (!cached || cached->listed == 0)
        return NULL;
    struct gb_client_lease *lease = find(cached, name, hash_of(name, strlen(name)));
    if (!lease)
        return NULL;
    if (!is_current(cached, lease)) {
        if (lease->cached)
            release(cached, lease);
        return NULL;
    }
    if (version && atomic_load(&lease->version) != version)
        return NULL;
    if (lease->cached) {
        uncache(cached, lease);
        lease->used = true;
    }
    lease->twice = true;
    struct gpubuf_object *root = lease->root;
    if (atomic_fetch_add_explicit(&root->references, 1, memory_order_relaxed) == 0)
        (void)atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
    return root;
}

/* Whether a lease may be cached. If more names are in use than the cache has room for, giving the
   oldest back each time would miss all of them in turn: most newcomers are turned away, so that the
   surplus alone misses; one is let in now and then, since the most used should be cached. */
static bool has_room(struct gb_cached *cached, const struct gb_client_lease *lease, int64_t now)
{
    if (cached->count < cached->most || lease->reported ||
        now - cached->oldest->idle_since >= FRESH_MS)
        return true;
    return ++cached->surplus % ADMIT_EVERY == 0;
}

bool gb_cached_add(struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;
    struct gb_cached *cached = client->cached;
    int64_t now = gb_coarse_ms();
    bool reports = !lease->reported;

    if (!lease->listed)
        return false;
    if (client->end.lost.code || client->link != GB_LINK_UP || !lease->twice ||
        atomic_load(&lease->ready) || !is_current(cached, lease) || !has_room(cached, lease, now) ||
        (reports && !report_cached(lease))) {
        unlist(cached, lease);
        return false;
    }
    lease->idle_since = now;
    append_newest(cached, lease);
    while (cached->count > cached->most)
        release(cached, cached->oldest);
    atomic_store_explicit(&client->caches, true, memory_order_relaxed);
    /* The flusher has to hear of recalls, whatever the program does next, and to tell what the
       daemon does not know. */
    if (reports || !client->flush.listens)
        (void)gb_flusher_engage(client);
    return true;
}

void gb_cached_list(struct gb_client_lease *lease)
{
    struct gb_cached *cached = lease->client->cached;

    /* A stream joins by a lease of its own. */
    if (!cached || lease->id == 0 || lease->access.live)
        return;
    lease->hash = hash_of(lease->name, strlen(lease->name));
    lease->twice = is_seen(cached, mix(lease->hash, atomic_load(&lease->version)));
    if (lease->twice && !cached->asked)
        ask_for_page(lease->client);
    if (!cached->slots || !lease->slot || lease->slot > cached->slot_count)
        return;
    struct gb_client_lease *former = find(cached, lease->name, lease->hash);
    if (former && former->cached)
        release(cached, former);
    else if (former)
        unlist(cached, former);
    if (cached->listed >= cached->bucket_count)
        grow(cached);
    struct gb_client_lease **bucket = bucket_of(cached, lease->hash);
    lease->chain = *bucket;
    *bucket = lease;
    lease->listed = true;
    cached->listed++;
}

/* ---- what the daemon wants ---- */

/* The lease is in use: tells the daemon so; it is told anew when the lease is no longer used. */
static void report_used(struct gb_client_lease *lease)
{
    if (gb_reserve_releases(lease->client, 1) < 0)
        return;
    gb_push_cached(lease->client, lease->id, true);
    lease->reported = lease->used = false;
}

static void recall(struct gpubuf_client *client, uint64_t id)
{
    struct gb_client_lease *lease = client->leases;

    while (lease && lease->id != id)
        lease = lease->next;
    if (lease && lease->cached)
        release(client->cached, lease);
    else if (lease) /* else its release is on its way */
        report_used(lease);
}

void gb_cached_recall(struct gpubuf_client *client, struct gb_json params)
{
    struct gb_json leases = {NULL, 0};
    static const struct gb_field fields[] = {
        {.name = "leases", .type = GB_FIELD_ARRAY, .flags = GB_FIELD_REQUIRED},
    };
    struct gb_path path = {.key = "params"};
    struct gb_error error;

    if (!client->cached)
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

static bool lies_in(const struct gb_client_lease *lease, uint64_t segment)
{
    for (size_t i = 0; i < lease->segment_count; i++) {
        if (lease->segments[i].import->segment == segment)
            return true;
    }
    return false;
}

void gb_cached_clear_segment(struct gpubuf_client *client, uint64_t segment)
{
    struct gb_client_lease *lease = client->cached ? client->cached->oldest : NULL;

    while (lease) {
        struct gb_client_lease *next = lease->newer;
        if (lies_in(lease, segment))
            release(client->cached, lease);
        lease = next;
    }
}

void gb_cached_drop_stale(struct gpubuf_client *client)
{
    struct gb_cached *cached = client->cached;

    for (struct gb_client_lease *lease = cached ? cached->oldest : NULL, *next; lease;
         lease = next) {
        next = lease->newer;
        if (!is_current(cached, lease))
            release(cached, lease);
    }
}

/* Reports leases in use that the daemon takes for unused, except those that were released after
   `since_ms`, which are used for moments only. Returns whether there are any. */
static bool report_in_use(struct gb_cached *cached, int64_t since_ms)
{
    bool any = false;

    for (size_t i = 0; cached->listed > cached->count && i < cached->bucket_count; i++)
        for (struct gb_client_lease *lease = cached->buckets[i]; lease; lease = lease->chain) {
            if (lease->cached || !lease->reported)
                continue;
            any = true;
            if (lease->idle_since < since_ms)
                report_used(lease);
        }
    return any;
}

void gb_cached_sweep(struct gpubuf_client *client)
{
    struct gb_cached *cached = client->cached;
    int64_t now = gb_coarse_ms(), before = cached ? cached->swept_ms : 0;

    if (!cached || now - before < SWEEP_MS)
        return;
    cached->swept_ms = now;
    while (cached->oldest && now - cached->oldest->idle_since >= cached->ms)
        release(cached, cached->oldest);
    gb_cached_drop_stale(client);
    for (struct gb_client_lease *lease = cached->oldest; lease; lease = lease->newer)
        (void)report_cached(lease);
    bool busy = report_in_use(cached, before);
    atomic_store_explicit(&client->caches, busy || cached->count > 0, memory_order_relaxed);
}

void gb_cached_forget(struct gpubuf_client *client)
{
    struct gb_cached *cached = client->cached;

    if (!cached)
        return;
    unmap_page(cached);
    cached->asked = false;
    while (cached->oldest)
        release(cached, cached->oldest);
    for (struct gb_client_lease *lease = client->leases; lease; lease = lease->next) {
        if (lease->listed)
            unlist(cached, lease);
        lease->slot = 0;
    }
    atomic_store_explicit(&client->caches, false, memory_order_relaxed);
}
