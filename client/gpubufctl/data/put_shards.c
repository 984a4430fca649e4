/* Publishing the .safetensors files that an index names as one bundle, with a manifest of its own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gpubufctl/data/put_safetensors.h"
#include "client/gpubufctl/output/json_print.h"

enum { INDEX_MAX = 100000000 };

struct shard {
    const char *name; /* as the index has it */
    char *path;
    struct gpubuf_bundle *bundle;
    struct stat status; /* when its manifest was read */
};

/* A tensor, and the shard that has it. */
struct entry {
    const struct gpubuf_tensor *tensor;
    const struct shard *shard;
    size_t i; /* its number in the bundle that is made */
};

struct shards {
    struct gb_put *put;
    const char *index; /* its path */
    cJSON *json;
    const cJSON *map;
    struct shard *shards;
    size_t shard_count;
    struct entry *entries; /* shard by shard, in the order of the data */
    struct entry *sorted;  /* by name */
    size_t count;
};

static _Noreturn void refuse(const struct shards *all, const char *what, const char *name,
                             const char *more)
{
    gb_cli_fail(GB_STATUS_FAILED, "%s: %s \"%.200s\"%s", all->index, what, name, more);
}

/* ---- the index ------------------------------------------------------------------------------ */

static void read_index(struct shards *all)
{
    struct gb_put *put = all->put;
    uint64_t size = put->input.bytes == GB_FILE_UNKNOWN ? INDEX_MAX : put->input.bytes;

    if (size > INDEX_MAX)
        gb_cli_fail(GB_STATUS_FAILED, "%s: is too long for an index", all->index);
    char *text = gb_grow(NULL, size + 1, 1);
    text[gb_put_read(put, text, size)] = '\0';
    all->json = gb_cjson_parse(text);
    free(text);
    all->map = gb_cjson_member(all->json, "weight_map");
    if (!cJSON_IsObject(all->map))
        gb_cli_fail(GB_STATUS_FAILED, "%s: is no index of .safetensors files: %s", all->index,
                    all->json ? "it has no object \"weight_map\"" : "it is no JSON");
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

/* The names of all shards, each once. */
static void name_shards(struct shards *all)
{
    size_t count = (size_t)cJSON_GetArraySize(all->map);

    all->shards = gb_new(count, sizeof(*all->shards));
    GB_CJSON_EACH(item, all->map) {
        const char *name = cJSON_GetStringValue(item);
        if (!name)
            refuse(all, "weight_map has no file's name for", item->string, "");
        if (strchr(name, '/') || !name[0] || name[0] == '.')
            refuse(all, "weight_map names", name, ", which is no file beside the index");
        all->shards[all->shard_count++].name = name;
    }
    qsort(all->shards, all->shard_count, sizeof(*all->shards), compare_shards);
    size_t kept = 0;
    for (size_t i = 0; i < all->shard_count; i++)
        if (i == 0 || strcmp(all->shards[kept - 1].name, all->shards[i].name) != 0)
            all->shards[kept++] = all->shards[i];
    memset(all->shards + kept, 0, (count - kept) * sizeof(*all->shards));
    all->shard_count = kept;
}

/* ---- the shards ----------------------------------------------------------------------------- */

/* Opens the shard as put->input; its progress goes on from the shards before. Returns the file's
   status. */
static struct stat open_shard(struct shards *all, const struct shard *shard)
{
    struct gb_put *put = all->put;
    struct gb_input *input = &put->input;
    struct gb_progress *progress = input->progress;
    uint64_t done = input->done;
    struct stat status;

    gb_input_close(input);
    put->start_length = 0;
    gb_cli_about("%s", shard->path);
    gb_input_open(input, shard->path);
    input->progress = progress;
    input->done = done;
    if (fstat(input->fd, &status) != 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", shard->path);
    return status;
}

static void read_manifest(struct shards *all, struct shard *shard)
{
    const char *slash = strrchr(all->index, '/');
    char *text;
    uint64_t length;

    shard->path =
        gb_text("%.*s%s", slash ? (int)(slash - all->index) + 1 : 0, all->index, shard->name);
    shard->status = open_shard(all, shard);
    shard->bundle = gb_put_manifest(all->put, &text, &length);
    free(text);
    all->put->input.done = 0; /* the progress bar counts the data only, not the manifests */
    all->count += gpubuf_bundle_count(shard->bundle);
}

/* ---- what they have ------------------------------------------------------------------------- */

static int compare_offsets(const void *a, const void *b)
{
    const struct gpubuf_tensor *left = ((const struct entry *)a)->tensor;
    const struct gpubuf_tensor *right = ((const struct entry *)b)->tensor;

    return (left->offset > right->offset) - (left->offset < right->offset);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor->name, ((const struct entry *)b)->tensor->name);
}

static void list_tensors(struct shards *all)
{
    size_t at = 0;

    all->entries = gb_new(all->count, sizeof(*all->entries));
    all->sorted = gb_new(all->count, sizeof(*all->sorted));
    for (size_t k = 0; k < all->shard_count; k++) {
        const struct shard *shard = &all->shards[k];
        size_t count = gpubuf_bundle_count(shard->bundle);
        for (size_t i = 0; i < count; i++)
            all->entries[at + i] =
                (struct entry){.tensor = gpubuf_bundle_at(shard->bundle, i), .shard = shard};
        qsort(all->entries + at, count, sizeof(*all->entries), compare_offsets);
        at += count;
    }
    for (size_t i = 0; i < all->count; i++)
        all->entries[i].i = i;
    memcpy(all->sorted, all->entries, all->count * sizeof(*all->sorted));
    qsort(all->sorted, all->count, sizeof(*all->sorted), compare_names);
    for (size_t i = 1; i < all->count; i++)
        if (compare_names(&all->sorted[i - 1], &all->sorted[i]) == 0)
            gb_cli_fail(GB_STATUS_FAILED, "%s: both %s and %s have the tensor \"%.200s\"",
                        all->index, all->sorted[i - 1].shard->name, all->sorted[i].shard->name,
                        all->sorted[i].tensor->name);
}

/* Checks that each tensor is in the shard that the index says. */
static void check_map(const struct shards *all)
{
    GB_CJSON_EACH(item, all->map) {
        const struct gpubuf_tensor tensor = {.name = item->string};
        const struct entry key = {.tensor = &tensor}, *found;
        found = bsearch(&key, all->sorted, all->count, sizeof(key), compare_names);
        if (!found)
            refuse(all, "it names the tensor", item->string, ", which no shard has");
        if (strcmp(found->shard->name, item->valuestring) != 0)
            gb_cli_fail(GB_STATUS_FAILED,
                        "%s: it says that %s has the tensor \"%.200s\", but %s has it", all->index,
                        item->valuestring, item->string, found->shard->name);
    }
}

static bool has_before(const struct shards *all, size_t k, const char *key)
{
    bool before = false;

    for (size_t j = 0; j < k && !before; j++)
        before = gpubuf_bundle_metadata(all->shards[j].bundle, key) != NULL;
    return before;
}

/* The metadata of all shards together; of a key that several have, the first shard's value. */
static const char **join_metadata(const struct shards *all)
{
    const char *key, *value, **pairs = gb_new(1, sizeof(*pairs));
    size_t count = 0;

    for (size_t k = 0; k < all->shard_count; k++)
        for (size_t i = 0; gpubuf_bundle_metadata_at(all->shards[k].bundle, i, &key, &value) == 0;
             i++) {
            if (has_before(all, k, key))
                continue;
            pairs = gb_grow(pairs, count + 3, sizeof(*pairs));
            pairs[count++] = key;
            pairs[count++] = value;
            pairs[count] = NULL;
        }
    return pairs;
}

/* ---- the bundle ----------------------------------------------------------------------------- */

static struct gpubuf_bundle *plan(const struct shards *all)
{
    struct gpubuf_tensor_spec *specs = gb_new(all->count, sizeof(*specs));
    const char **metadata = join_metadata(all);
    struct gpubuf_bundle *bundle;

    for (size_t i = 0; i < all->count; i++) {
        const struct gpubuf_tensor *tensor = all->entries[i].tensor;
        specs[i] =
            (struct gpubuf_tensor_spec){tensor->name, tensor->dtype, tensor->ndim, tensor->shape};
    }
    if (gpubuf_bundle_plan(specs, all->count, metadata, &bundle) < 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s: %s", all->index, gpubuf_errmsg(NULL));
    free(metadata);
    free(specs);
    return bundle;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the tensors of one shard: `entry` is the first of them. */
static void read_shard(struct shards *all, const struct entry *entry,
                       const struct gpubuf_bundle *bundle)
{
    const struct entry *end = all->entries + all->count;
    const struct shard *shard = entry->shard;
    struct stat status = open_shard(all, shard);

    if (!same_file(&status, &shard->status))
        gb_cli_fail(GB_STATUS_FAILED, "%s: was changed while it was read", shard->path);
    for (; entry < end && entry->shard == shard; entry++) {
        if (lseek(all->put->input.fd, (off_t)entry->tensor->offset, SEEK_SET) < 0)
            gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", shard->path);
        gb_put_stream(all->put, gpubuf_bundle_at(bundle, entry->i)->offset, entry->tensor->bytes);
    }
}

static void publish(struct shards *all)
{
    struct gpubuf_bundle *bundle = plan(all);
    struct gpubuf_layout_spec layout;
    uint64_t length;

    gpubuf_bundle_layout(bundle, &layout);
    all->put->progress.total = layout.bytes;
    const void *head = gpubuf_bundle_head(bundle, &length);
    gb_put_create_bundle(all->put, bundle, head, length);
    for (size_t i = 0; i < all->count; i++)
        if (i == 0 || all->entries[i].shard != all->entries[i - 1].shard)
            read_shard(all, &all->entries[i], bundle);
    gpubuf_bundle_free(bundle);
}

void gb_put_shards(struct gb_put *put)
{
    struct shards all = {.put = put, .index = put->input.name};

    read_index(&all);
    name_shards(&all);
    for (size_t i = 0; i < all.shard_count; i++)
        read_manifest(&all, &all.shards[i]);
    list_tensors(&all);
    check_map(&all);
    publish(&all);
    put->input.name = all.index; /* the shards' paths are freed */
    for (size_t i = 0; i < all.shard_count; i++) {
        gpubuf_bundle_free(all.shards[i].bundle);
        free(all.shards[i].path);
    }
    free(all.entries);
    free(all.sorted);
    free(all.shards);
    cJSON_Delete(all.json);
}
