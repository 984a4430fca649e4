/* Publishing the .safetensors files that an index names as one bundle, with a manifest of its own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_print.h"
#include "put_safetensors.h"

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

static int no_memory(struct gb_put *put)
{
    gb_fail_memory(&put->error);
    return gb_put_failure(put);
}

static int refuse(const struct shards *all, const char *what, const char *name, const char *more)
{
    return gb_cli_fail(GB_STATUS_FAILED, "%s: %s \"%.200s\"%s", all->index, what, name, more);
}

/* ---- the index ------------------------------------------------------------------------------ */

static int read_index(struct shards *all)
{
    struct gb_put *put = all->put;
    uint64_t size = put->input.bytes == GB_FILE_UNKNOWN ? INDEX_MAX : put->input.bytes, got;

    if (size > INDEX_MAX)
        return gb_cli_fail(GB_STATUS_FAILED, "%s: is too long for an index", all->index);
    char *text = malloc(size + 1);
    if (!text)
        return no_memory(put);
    if (gb_put_read(put, text, size, &got) != 0) {
        free(text);
        return gb_put_failure(put);
    }
    text[got] = '\0';
    all->json = gb_cjson_parse(text);
    free(text);
    all->map = cJSON_GetObjectItemCaseSensitive(all->json, "weight_map");
    if (!cJSON_IsObject(all->map))
        return gb_cli_fail(GB_STATUS_FAILED, "%s: is no index of .safetensors files: %s",
                           all->index,
                           all->json ? "it has no object \"weight_map\"" : "it is no JSON");
    return GB_STATUS_OK;
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

/* The names of all shards, each once. */
static int name_shards(struct shards *all)
{
    size_t count = 0;

    GB_CJSON_EACH(item, all->map)
        count++;
    all->shards = calloc(count + 1, sizeof(*all->shards));
    if (!all->shards)
        return no_memory(all->put);
    GB_CJSON_EACH(item, all->map) {
        const char *name = cJSON_GetStringValue(item);
        if (!name)
            return refuse(all, "weight_map has no file's name for", item->string, "");
        if (strchr(name, '/') || !name[0] || name[0] == '.')
            return refuse(all, "weight_map names", name, ", which is no file beside the index");
        all->shards[all->shard_count++].name = name;
    }
    qsort(all->shards, all->shard_count, sizeof(*all->shards), compare_shards);
    size_t kept = 0;
    for (size_t i = 0; i < all->shard_count; i++)
        if (i == 0 || strcmp(all->shards[kept - 1].name, all->shards[i].name) != 0)
            all->shards[kept++] = all->shards[i];
    memset(all->shards + kept, 0, (count - kept) * sizeof(*all->shards));
    all->shard_count = kept;
    return GB_STATUS_OK;
}

/* ---- the shards ----------------------------------------------------------------------------- */

/* Opens the shard as put->input; its progress goes on from the shards before. 0, or a status. */
static int open_shard(struct shards *all, struct shard *shard, struct stat *status)
{
    struct gb_put *put = all->put;
    struct gb_input *input = &put->input;
    struct gb_progress *progress = input->progress;
    uint64_t done = input->done;

    gb_input_close(input);
    put->start_length = 0;
    if (gb_input_open(input, shard->path, &put->error) != 0)
        return gb_cli_tell(&put->error);
    input->progress = progress;
    input->done = done;
    if (fstat(input->fd, status) != 0)
        return gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", shard->path);
    return GB_STATUS_OK;
}

static int read_manifest(struct shards *all, struct shard *shard)
{
    const char *slash = strrchr(all->index, '/');
    char *text;
    uint64_t length;

    if (asprintf(&shard->path, "%.*s%s", slash ? (int)(slash - all->index) + 1 : 0, all->index,
                 shard->name) < 0) {
        shard->path = NULL;
        return no_memory(all->put);
    }
    int status = open_shard(all, shard, &shard->status);
    if (status == GB_STATUS_OK)
        status = gb_put_manifest(all->put, &text, &length, &shard->bundle);
    if (status != GB_STATUS_OK)
        return status;
    free(text);
    all->put->input.done = 0; /* the progress bar counts the data only, not the manifests */
    all->count += gpubuf_bundle_count(shard->bundle);
    return GB_STATUS_OK;
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

static int list_tensors(struct shards *all)
{
    size_t at = 0;

    all->entries = calloc(all->count + 1, sizeof(*all->entries));
    all->sorted = calloc(all->count + 1, sizeof(*all->sorted));
    if (!all->entries || !all->sorted)
        return no_memory(all->put);
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
            return gb_cli_fail(GB_STATUS_FAILED, "%s: both %s and %s have the tensor \"%.200s\"",
                               all->index, all->sorted[i - 1].shard->name,
                               all->sorted[i].shard->name, all->sorted[i].tensor->name);
    return GB_STATUS_OK;
}

/* Checks that each tensor is in the shard that the index says. */
static int check_map(const struct shards *all)
{
    GB_CJSON_EACH(item, all->map) {
        const struct gpubuf_tensor tensor = {.name = item->string};
        const struct entry key = {.tensor = &tensor}, *found;
        found = bsearch(&key, all->sorted, all->count, sizeof(key), compare_names);
        if (!found)
            return refuse(all, "it names the tensor", item->string, ", which no shard has");
        if (strcmp(found->shard->name, item->valuestring) != 0)
            return gb_cli_fail(GB_STATUS_FAILED,
                               "%s: it says that %s has the tensor \"%.200s\", but %s has it",
                               all->index, item->valuestring, item->string, found->shard->name);
    }
    return GB_STATUS_OK;
}

/* The metadata of all shards together; of a key that several have, the first shard's value. */
static const char **join_metadata(const struct shards *all)
{
    const char *key, *value, **pairs = NULL;
    size_t count = 0;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && !(pairs = calloc(2 * count + 1, sizeof(*pairs))))
            return NULL;
        count = 0;
        for (size_t k = 0; k < all->shard_count; k++) {
            const struct gpubuf_bundle *bundle = all->shards[k].bundle;
            for (size_t i = 0; gpubuf_bundle_metadata_at(bundle, i, &key, &value) == 0; i++) {
                bool before = false;
                for (size_t j = 0; j < k && !before; j++)
                    before = gpubuf_bundle_metadata(all->shards[j].bundle, key) != NULL;
                if (before)
                    continue;
                if (pairs) {
                    pairs[2 * count] = key;
                    pairs[2 * count + 1] = value;
                }
                count++;
            }
        }
    }
    return pairs;
}

/* ---- the bundle ----------------------------------------------------------------------------- */

static int plan(const struct shards *all, struct gpubuf_bundle **bundle)
{
    struct gpubuf_tensor_spec *specs = calloc(all->count + 1, sizeof(*specs));
    const char **metadata = join_metadata(all);
    int status = GB_STATUS_OK;

    for (size_t i = 0; specs && i < all->count; i++) {
        const struct gpubuf_tensor *tensor = all->entries[i].tensor;
        specs[i] =
            (struct gpubuf_tensor_spec){tensor->name, tensor->dtype, tensor->ndim, tensor->shape};
    }
    if (!specs || !metadata)
        status = no_memory(all->put);
    else if (gpubuf_bundle_plan(specs, all->count, metadata, bundle) < 0)
        status = gb_cli_fail(GB_STATUS_FAILED, "%s: %s", all->index, gpubuf_errmsg(NULL));
    free(metadata);
    free(specs);
    return status;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the tensors of one shard: `entry` is the first of them. */
static int read_shard(struct shards *all, const struct entry *entry,
                      const struct gpubuf_bundle *bundle)
{
    const struct entry *end = all->entries + all->count;
    struct shard *shard = &all->shards[entry->shard - all->shards];
    struct stat status;

    int r = open_shard(all, shard, &status);
    if (r != GB_STATUS_OK)
        return r;
    if (!same_file(&status, &shard->status))
        return gb_cli_fail(GB_STATUS_FAILED, "%s: was changed while it was read", shard->path);
    for (; entry < end && entry->shard == shard && r == GB_STATUS_OK; entry++) {
        if (lseek(all->put->input.fd, (off_t)entry->tensor->offset, SEEK_SET) < 0)
            return gb_cli_fail(GB_STATUS_FAILED, "cannot read %s: %m", shard->path);
        r = gb_put_stream(all->put, gpubuf_bundle_at(bundle, entry->i)->offset,
                          entry->tensor->bytes);
    }
    return r;
}

static int publish(struct shards *all)
{
    struct gpubuf_bundle *bundle = NULL;
    struct gpubuf_layout_spec layout;
    uint64_t length;

    int status = plan(all, &bundle);
    if (status != GB_STATUS_OK)
        return status;
    gpubuf_bundle_layout(bundle, &layout);
    all->put->progress.total = layout.bytes;
    const void *head = gpubuf_bundle_head(bundle, &length);
    status = gb_put_create_bundle(all->put, bundle, head, length);
    for (size_t i = 0; i < all->count && status == GB_STATUS_OK; i++)
        if (i == 0 || all->entries[i].shard != all->entries[i - 1].shard)
            status = read_shard(all, &all->entries[i], bundle);
    gpubuf_bundle_free(bundle);
    return status;
}

int gb_put_shards(struct gb_put *put)
{
    struct shards all = {.put = put, .index = put->input.name};
    int status = read_index(&all);

    if (status == GB_STATUS_OK)
        status = name_shards(&all);
    for (size_t i = 0; i < all.shard_count && status == GB_STATUS_OK; i++)
        status = read_manifest(&all, &all.shards[i]);
    if (status == GB_STATUS_OK)
        status = list_tensors(&all);
    if (status == GB_STATUS_OK)
        status = check_map(&all);
    if (status == GB_STATUS_OK)
        status = publish(&all);
    put->input.name = all.index; /* the shards' paths are freed */
    for (size_t i = 0; i < all.shard_count; i++) {
        gpubuf_bundle_free(all.shards[i].bundle);
        free(all.shards[i].path);
    }
    free(all.entries);
    free(all.sorted);
    free(all.shards);
    cJSON_Delete(all.json);
    return status;
}
