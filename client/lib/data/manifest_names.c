#include <stdlib.h>
#include <string.h>

#include "client/lib/data/manifest.h"

/* Eight bytes at a time. Names that were chosen to collide only cost comparisons of text. */
static uint64_t hash_of(const char *name)
{
    size_t left = strlen(name);
    uint64_t hash = left, word;

    for (; left > 0; name += left < 8 ? left : 8, left -= left < 8 ? left : 8) {
        word = 0;
        memcpy(&word, name, left < 8 ? left : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static int compare_named(const void *a, const void *b)
{
    const struct gb_named *left = a, *right = b;

    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return strcmp(left->name, right->name);
}

long gb_manifest_find(const struct gb_named *names, size_t count, const char *name)
{
    struct gb_named key = {.hash = hash_of(name), .name = name};
    const struct gb_named *found =
        count ? bsearch(&key, names, count, sizeof(key), compare_named) : NULL;

    return found ? (long)found->i : -1;
}

/* Sorts names by hash: into at least as many buckets as there are names, by the hash's first bits,
   and then each bucket. It takes n log n comparisons at most, however the names were chosen. */
static int sort(struct gb_named *names, size_t count, struct gb_pool *pool)
{
    unsigned bits = 1;

    while (((size_t)1 << bits) < count)
        bits++;
    size_t buckets = (size_t)1 << bits, at = 0;
    size_t scratch = buckets * sizeof(size_t) + count * sizeof(*names);
    size_t *ends = gb_pool_alloc(pool, scratch);
    if (!ends)
        return GPUBUF_E_NO_MEMORY;
    struct gb_named *sorted = (struct gb_named *)(ends + buckets);
    memset(ends, 0, buckets * sizeof(*ends));
    for (size_t i = 0; i < count; i++)
        ends[names[i].hash >> (64 - bits)]++;
    for (size_t i = 0; i < buckets; i++) { /* where each begins; then, once filled, where it ends */
        size_t begin = at;
        at += ends[i];
        ends[i] = begin;
    }
    for (size_t i = 0; i < count; i++)
        sorted[ends[names[i].hash >> (64 - bits)]++] = names[i];
    for (size_t i = 0, begin = 0; i < buckets; begin = ends[i++]) {
        if (ends[i] - begin > 1)
            qsort(&sorted[begin], ends[i] - begin, sizeof(*sorted), compare_named);
    }
    memcpy(names, sorted, count * sizeof(*names));
    gb_pool_shrink(pool, ends, scratch, 0);
    return 0;
}

int gb_manifest_sort(struct gb_named *names, size_t count, const char *what, struct gb_pool *pool,
                     struct gb_error *error)
{
    for (size_t i = 0; i < count; i++)
        names[i].hash = hash_of(names[i].name);
    if (count > 1 && sort(names, count, pool) < 0)
        return gb_fail_memory(error);
    for (size_t i = 1; i < count; i++) {
        if (compare_named(&names[i - 1], &names[i]) == 0)
            return gb_fail(error, GPUBUF_E_INVALID, "%s \"%.80s\" is there twice", what,
                           names[i].name);
    }
    return 0;
}

static bool is_gap(const struct gpubuf_tensor *tensor)
{
    return strncmp(tensor->name, GB_MANIFEST_GAP, strlen(GB_MANIFEST_GAP)) == 0;
}

static bool has_gaps(const struct gb_manifest *manifest)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        if (is_gap(&manifest->tensors[i]))
            return true;
    }
    return false;
}

/* Keeps the marked tensors. `places` has room for as many numbers as there are. */
static void keep_marked(struct gb_manifest *manifest, const bool *marks, size_t *places)
{
    size_t count = manifest->tensor_count, kept = 0, named = 0;

    for (size_t i = 0; i < count; i++) {
        places[i] = kept;
        if (marks[i])
            manifest->tensors[kept++] = manifest->tensors[i];
    }
    for (size_t i = 0; i < count; i++) {
        struct gb_named name = manifest->tensor_names[i];
        if (marks[name.i])
            manifest->tensor_names[named++] =
                (struct gb_named){name.hash, name.name, places[name.i]};
    }
    manifest->tensor_count = kept;
}

int gb_manifest_forget_gaps(struct gb_manifest *manifest, struct gb_error *error)
{
    size_t tensors = manifest->tensor_count;

    if (!has_gaps(manifest))
        return 0;
    size_t *places = calloc(tensors + 1, sizeof(*places) + sizeof(bool));
    if (!places)
        return gb_fail_memory(error);
    bool *marks = (bool *)(places + tensors + 1);
    for (size_t i = 0; i < tensors; i++)
        marks[i] = !is_gap(&manifest->tensors[i]);
    keep_marked(manifest, marks, places);
    free(places);
    return 0;
}
