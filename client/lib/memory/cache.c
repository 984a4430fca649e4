#include "client/lib/memory/cache.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/memory/import_cuda.h"

#define IDLE_COUNT_MAX 256u
#define MAPPING_BUCKETS 256u /* a process maps few segments; chains only get longer past that */
#define IMPORT_BUCKETS_MIN 16u

/* ---- mappings: one set for the process --------------------------------------------------- */

struct gb_mapped {
    struct gb_mapped *chain;
    char instance[GB_INSTANCE_BYTES];
    uint64_t segment;
    struct gb_memory_identity identity;
    struct gb_imported memory;
    size_t references; /* imports that have it */
    bool making;       /* by a thread that calls the driver, without the lock */
    bool ours;         /* children of fork do not have the memory … */
    bool left;         /* … and this is one: its addresses are free, or others' */
    _Atomic int guards, strays, writers;
    size_t pins;           /* see gb_mapped_pin */
    struct gb_gpu *pinned; /* by which it is registered, while there are pins */
};

/* Not held while a GPU's driver is called: the driver is slow, and around a fork takes locks of its
   own. */
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cache_made = PTHREAD_COND_INITIALIZER;
static struct gb_mapped *cache_buckets[MAPPING_BUCKETS];

void *gb_mapped_address(const struct gb_mapped *mapping)
{
    return mapping->memory.address;
}

uint64_t gb_mapped_bytes(const struct gb_mapped *mapping)
{
    return mapping->memory.bytes;
}

const struct gb_imported *gb_mapped_memory(const struct gb_mapped *mapping)
{
    return &mapping->memory;
}

struct gb_gpu *gb_mapped_gpu(const struct gb_mapped *mapping)
{
    return mapping->memory.gpu;
}

int gb_mapped_write(const struct gb_mapped *mapping, uint64_t offset, const void *from,
                    uint64_t bytes, struct gb_error *error)
{
    return gb_import_write(&mapping->memory, offset, from, bytes, error);
}

/* ---- guards ---- */

#define GUARD_BYTES (UINT64_C(64) << 10) /* the smallest range that is guarded */
#define GUARDS_MAX 4096                  /* of the process */

static _Atomic int guard_count;

/* Rounds to the whole pages within the range. Returns whether they are worth a guard. */
static bool round_guard(uint64_t *from, uint64_t *to)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    *from = (*from + page - 1) / page * page;
    *to = *to / page * page;
    return *to >= *from + GUARD_BYTES;
}

bool gb_mapped_guard(struct gb_mapped *mapping, uint64_t from, uint64_t to)
{
    if (!round_guard(&from, &to) || atomic_load(&mapping->strays) > 0)
        return false;
    if (atomic_fetch_add(&guard_count, 1) < GUARDS_MAX) {
        atomic_fetch_add(&mapping->guards, 1);
        if (gb_import_set_writable(&mapping->memory, from, to, false))
            return true;
        atomic_fetch_sub(&mapping->guards, 1);
    }
    atomic_fetch_sub(&guard_count, 1);
    return false;
}

void gb_mapped_unguard(struct gb_mapped *mapping, uint64_t from, uint64_t to)
{
    if (!round_guard(&from, &to))
        return;
    (void)gb_import_set_writable(&mapping->memory, from, to, true);
    atomic_fetch_sub(&mapping->guards, 1);
    atomic_fetch_sub(&guard_count, 1);
}

void gb_mapped_open(struct gb_mapped *mapping, uint64_t from, uint64_t to)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (atomic_load(&mapping->guards) == 0)
        return;
    to = (to + page - 1) / page * page;
    if (to > mapping->memory.bytes)
        to = mapping->memory.bytes;
    (void)gb_import_set_writable(&mapping->memory, from / page * page, to, true);
}

void gb_mapped_stray(struct gb_mapped *mapping, int more)
{
    atomic_fetch_add(&mapping->strays, more);
}

void gb_mapped_writer(struct gb_mapped *mapping, int more)
{
    atomic_fetch_add(&mapping->writers, more);
}

void gb_mapped_lose(struct gb_mapped *mapping, uint64_t from, uint64_t to)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (atomic_fetch_sub(&mapping->writers, 1) == 1) {
        from = 0;
        to = mapping->memory.bytes;
    }
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (mapping->memory.gpu || to <= from)
        return;
    atomic_fetch_add(&mapping->guards, 1); /* so that gb_mapped_open() opens what is written anew */
    (void)gb_import_set_writable(&mapping->memory, from, to, false);
}

int gb_mapped_finish(struct gb_mapped *mapping, struct gb_error *error)
{
    return gb_import_finish(&mapping->memory, error);
}

/* ---- pins ---- */

int gb_mapped_pin(struct gb_mapped *mapping, struct gb_error *error)
{
    int r = mapping->pins > 0 ? 0 : gb_cuda_register(&mapping->memory, &mapping->pinned, error);

    if (r == 0)
        mapping->pins++;
    return r;
}

void gb_mapped_unpin(struct gb_mapped *mapping)
{
    if (--mapping->pins == 0)
        gb_cuda_unregister(&mapping->memory, mapping->pinned);
}

static size_t hash_segment(uint64_t segment)
{
    uint64_t hash = segment * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(hash >> 32);
}

static struct gb_mapped *cache_find(const char *instance, uint64_t segment, bool writable)
{
    struct gb_mapped *mapping = cache_buckets[hash_segment(segment) % MAPPING_BUCKETS];

    while (mapping && (mapping->segment != segment || mapping->memory.writable != writable ||
                       strcmp(mapping->instance, instance) != 0))
        mapping = mapping->chain;
    return mapping;
}

static bool is_on_gpu(const struct gb_segment_info *segment)
{
    return segment->handle.kind != GB_HANDLE_MEMFD;
}

/* The mapping that serves a segment. On a GPU a process that writes also reads by that mapping. */
static struct gb_mapped *cache_find_for(const char *instance, const struct gb_segment_info *segment)
{
    struct gb_mapped *mapping = NULL;

    if (is_on_gpu(segment) && !segment->writable)
        mapping = cache_find(instance, segment->id, true);
    return mapping ? mapping : cache_find(instance, segment->id, segment->writable);
}

static void cache_remove(struct gb_mapped *mapping)
{
    struct gb_mapped **link = &cache_buckets[hash_segment(mapping->segment) % MAPPING_BUCKETS];

    while (*link != mapping)
        link = &(*link)->chain;
    *link = mapping->chain;
}

static struct gb_mapped *cache_add(const char *instance, const struct gb_segment_info *segment,
                                   int fd, const struct gb_memory_identity *identity,
                                   struct gb_error *error)
{
    struct gb_mapped *mapping = calloc(1, sizeof(*mapping));

    if (!mapping) {
        gb_fail_memory(error);
        return NULL;
    }
    strncpy(mapping->instance, instance, sizeof(mapping->instance) - 1);
    mapping->segment = segment->id;
    mapping->identity = *identity;
    mapping->memory.writable = segment->writable;
    struct gb_mapped **bucket = &cache_buckets[hash_segment(segment->id) % MAPPING_BUCKETS];
    mapping->chain = *bucket;
    *bucket = mapping;

    struct gb_imported memory;
    mapping->making = is_on_gpu(segment);
    if (mapping->making)
        pthread_mutex_unlock(&cache_lock);
    int r = gb_import_map(segment, fd, &memory, error);
    if (mapping->making)
        pthread_mutex_lock(&cache_lock);
    if (r == 0)
        mapping->memory = memory;
    else
        cache_remove(mapping);
    if (mapping->making)
        pthread_cond_broadcast(&cache_made);
    mapping->making = false;
    if (r < 0) {
        free(mapping);
        return NULL;
    }
    return mapping;
}

/* Adds a reference to the mapping of a segment, which is made if the process has none. */
static int mapping_acquire(const char *instance, const struct gb_segment_info *segment, int fd,
                           struct gb_mapped **out, struct gb_error *error)
{
    struct gb_memory_identity identity = {0, 0};
    int r = gb_import_identify(segment, fd, &identity, error);

    if (r < 0)
        return r;

    struct gb_mapped *mapping;
    pthread_mutex_lock(&cache_lock);
    while ((mapping = cache_find_for(instance, segment)) && mapping->making)
        pthread_cond_wait(&cache_made, &cache_lock);
    if (!mapping) {
        struct gb_error failure = {.code = GPUBUF_E_NO_MEMORY};
        mapping = cache_add(instance, segment, fd, &identity, &failure);
        if (!mapping) {
            r = failure.code;
            if (error)
                *error = failure;
        }
    } else if (mapping->identity.device != identity.device ||
               mapping->identity.file != identity.file || mapping->memory.bytes != segment->bytes) {
        r = gb_fail(error, GPUBUF_E_PROTOCOL,
                    "segment %" PRIu64 " is not the one that has that number already", segment->id);
        mapping = NULL;
    }
    if (mapping) {
        mapping->references++;
        *out = mapping;
    }
    pthread_mutex_unlock(&cache_lock);
    return r;
}

static void mapping_release(struct gb_mapped *mapping)
{
    if (!mapping)
        return;
    pthread_mutex_lock(&cache_lock);
    bool last = --mapping->references == 0;
    if (last && !mapping->left)
        cache_remove(mapping);
    pthread_mutex_unlock(&cache_lock);
    if (last && !mapping->left)
        gb_import_unmap(&mapping->memory);
    if (last)
        free(mapping);
}

void gb_mapped_keep_from_children(struct gb_mapped *mapping)
{
    pthread_mutex_lock(&cache_lock);
    if (!mapping->memory.gpu && !mapping->ours)
        mapping->ours =
            madvise(mapping->memory.address, (size_t)mapping->memory.bytes, MADV_DONTFORK) == 0;
    pthread_mutex_unlock(&cache_lock);
}

void gb_cache_before_fork(void)
{
    pthread_mutex_lock(&cache_lock);
}

void gb_cache_after_fork(void)
{
    pthread_mutex_unlock(&cache_lock);
}

void gb_cache_in_child(void)
{
    for (size_t i = 0; i < MAPPING_BUCKETS; i++) {
        struct gb_mapped **link = &cache_buckets[i];
        while (*link) {
            struct gb_mapped *mapping = *link;
            mapping->left = mapping->ours;
            if (mapping->left)
                *link = mapping->chain;
            else
                link = &mapping->chain;
        }
    }
    gb_cache_after_fork();
}

/* ---- imports: one set for a session ------------------------------------------------------ */

static uint64_t import_bytes(const struct gb_import *import)
{
    uint64_t bytes = 0;

    for (int access = 0; access < 2; access++) {
        if (import->mappings[access])
            bytes += import->mappings[access]->memory.bytes;
    }
    return bytes;
}

static void idle_add(struct gb_imports *imports, struct gb_import *import)
{
    import->idle = true;
    import->newer = NULL;
    import->older = imports->newest;
    if (imports->newest)
        imports->newest->newer = import;
    else
        imports->oldest = import;
    imports->newest = import;
    imports->idle_count++;
    imports->idle_retired += import->retired;
    imports->idle_bytes += import_bytes(import);
}

static void idle_remove(struct gb_imports *imports, struct gb_import *import)
{
    if (import->newer)
        import->newer->older = import->older;
    else
        imports->newest = import->older;
    if (import->older)
        import->older->newer = import->newer;
    else
        imports->oldest = import->newer;
    import->idle = false;
    import->newer = import->older = NULL;
    imports->idle_count--;
    imports->idle_retired -= import->retired;
    imports->idle_bytes -= import_bytes(import);
}

static void import_free(struct gb_import *import)
{
    mapping_release(import->mappings[0]);
    mapping_release(import->mappings[1]);
    free(import);
}

static struct gb_import **find_link(const struct gb_imports *imports, uint64_t segment)
{
    struct gb_import **link = &imports->buckets[hash_segment(segment) % imports->bucket_count];

    while (*link && (*link)->segment != segment)
        link = &(*link)->chain;
    return link;
}

struct gb_import *gb_imports_find(const struct gb_imports *imports, uint64_t segment)
{
    return imports->bucket_count ? *find_link(imports, segment) : NULL;
}

static int grow_buckets(struct gb_imports *imports, size_t wanted)
{
    if (wanted <= imports->bucket_count)
        return 0;
    size_t bucket_count = imports->bucket_count ? imports->bucket_count : IMPORT_BUCKETS_MIN;
    while (bucket_count < wanted)
        bucket_count *= 2;
    struct gb_import **buckets = calloc(bucket_count, sizeof(struct gb_import *));
    if (!buckets)
        return GPUBUF_E_NO_MEMORY;

    for (size_t i = 0; i < imports->bucket_count; i++) {
        struct gb_import *import = imports->buckets[i];
        while (import) {
            struct gb_import *next = import->chain;
            struct gb_import **bucket = &buckets[hash_segment(import->segment) % bucket_count];
            import->chain = *bucket;
            *bucket = import;
            import = next;
        }
    }
    free(imports->buckets);
    imports->buckets = buckets;
    imports->bucket_count = bucket_count;
    return 0;
}

int gb_imports_reserve(struct gb_imports *imports, size_t more)
{
    size_t wanted = imports->count + imports->unmap_count + more;

    if (wanted > imports->unmap_capacity) {
        size_t capacity = imports->unmap_capacity ? imports->unmap_capacity : 64;
        while (capacity < wanted)
            capacity *= 2;
        uint64_t *unmap = realloc(imports->unmap, capacity * sizeof(*unmap));
        if (!unmap)
            return GPUBUF_E_NO_MEMORY;
        imports->unmap = unmap;
        imports->unmap_capacity = capacity;
    }
    return grow_buckets(imports, imports->count + 1);
}

static void push_unmap(struct gb_imports *imports, uint64_t segment)
{
    assert(imports->unmap_count < imports->unmap_capacity);
    imports->unmap[imports->unmap_count++] = segment;
}

/* Forgets an idle import; the daemon is to be told. */
static void import_drop(struct gb_imports *imports, struct gb_import *import)
{
    assert(import->idle && import->leases == 0);
    idle_remove(imports, import);
    *find_link(imports, import->segment) = import->chain;
    imports->count--;
    imports->drops++;
    push_unmap(imports, import->segment);
    import_free(import);
}

static struct gb_import *import_add(struct gb_imports *imports, uint64_t segment)
{
    if (grow_buckets(imports, imports->count + 1) < 0)
        return NULL;
    struct gb_import *import = calloc(1, sizeof(*import));
    if (!import)
        return NULL;
    import->segment = segment;
    struct gb_import **bucket = &imports->buckets[hash_segment(segment) % imports->bucket_count];
    import->chain = *bucket;
    *bucket = import;
    imports->count++;
    idle_add(imports, import);
    return import;
}

int gb_imports_map_segment(struct gb_imports *imports, const char *instance,
                           const struct gb_segment_info *segment, int fd, struct gb_error *error)
{
    struct gb_import *import = gb_imports_find(imports, segment->id);
    struct gb_mapped *mapping = NULL;
    int r = mapping_acquire(instance, segment, fd, &mapping, error);

    if (r == 0 && !import) {
        import = import_add(imports, segment->id);
        if (!import)
            r = gb_fail_memory(error);
    }
    if (r < 0) {
        mapping_release(mapping);
        /* The session's import of the segment stays: it stands for both accesses, and the daemon is
           told when it is dropped. */
        if (!import) {
            imports->drops++;
            push_unmap(imports, segment->id);
        }
        return r;
    }

    struct gb_mapped **place = &import->mappings[segment->writable];
    if (*place) {
        mapping_release(mapping); /* told twice */
        return 0;
    }
    *place = mapping;
    if (import->idle)
        imports->idle_bytes += mapping->memory.bytes;
    return 0;
}

struct gb_mapped *gb_imports_for_reading(struct gb_imports *imports, const char *instance,
                                         struct gb_import *import)
{
    const struct gb_mapped *writing = import->mappings[1];

    if (import->mappings[0] || !writing || writing->memory.gpu || writing->memory.fd < 0)
        return import->mappings[0];
    const struct gb_segment_info segment = {
        .id = import->segment,
        .bytes = writing->memory.bytes,
        .handle = {.kind = GB_HANDLE_MEMFD},
    };
    if (mapping_acquire(instance, &segment, writing->memory.fd, &import->mappings[0], NULL) < 0)
        return NULL;
    if (import->idle)
        imports->idle_bytes += writing->memory.bytes;
    return import->mappings[0];
}

void gb_imports_use(struct gb_imports *imports, struct gb_import *import)
{
    if (import->leases++ == 0)
        idle_remove(imports, import);
}

void gb_imports_unuse(struct gb_imports *imports, struct gb_import *import)
{
    assert(import->leases > 0);
    if (--import->leases > 0)
        return;
    if (import->detached)
        import_free(import);
    else
        idle_add(imports, import);
}

void gb_imports_retire(struct gb_imports *imports, uint64_t segment)
{
    struct gb_import *import = gb_imports_find(imports, segment);

    if (!import || import->retired)
        return;
    import->retired = true;
    if (import->idle)
        imports->idle_retired++;
    gb_imports_trim(imports);
}

static void drop_retired(struct gb_imports *imports)
{
    struct gb_import *import = imports->oldest;

    while (imports->idle_retired > 0) {
        struct gb_import *newer = import->newer;
        if (import->retired)
            import_drop(imports, import);
        import = newer;
    }
}

void gb_imports_trim(struct gb_imports *imports)
{
    if (imports->holds > 0)
        return;
    drop_retired(imports);
    while (imports->idle_count > IDLE_COUNT_MAX ||
           (imports->idle_count > 0 && imports->idle_bytes > imports->idle_bytes_max))
        import_drop(imports, imports->oldest);
}

void gb_imports_hold(struct gb_imports *imports)
{
    imports->holds++;
}

void gb_imports_unhold(struct gb_imports *imports)
{
    assert(imports->holds > 0);
    imports->holds--;
    gb_imports_trim(imports);
}

void gb_imports_abandon(struct gb_imports *imports)
{
    while (imports->oldest)
        import_drop(imports, imports->oldest);
    imports->unmap_count = 0;
}

static void import_resume(struct gb_imports *imports, struct gb_import *import, bool tell)
{
    if (import->counted) {
        import->counted = import->retired = false;
    } else if (import->idle) {
        import_drop(imports, import);
        if (!tell)
            imports->unmap_count--;
    } else {
        *find_link(imports, import->segment) = import->chain;
        imports->count--;
        imports->drops++;
        import->detached = true;
    }
}

void gb_imports_resume(struct gb_imports *imports, bool tell)
{
    for (size_t i = 0; i < imports->bucket_count; i++) {
        struct gb_import *import = imports->buckets[i];
        while (import) {
            struct gb_import *next = import->chain;
            import_resume(imports, import, tell);
            import = next;
        }
    }
}

void gb_imports_end(struct gb_imports *imports)
{
    gb_imports_abandon(imports);
    assert(imports->count == 0);
    free(imports->buckets);
    free(imports->unmap);
    *imports = (struct gb_imports){0};
}
