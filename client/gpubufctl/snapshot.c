#include "snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/common/remake.h"
#include "end.h"
#include "file.h"
#include "json_print.h"
#include "series.h"

enum { CHUNK = 4 << 20, ALIGN = 64 };

/* An object on its way between memory and a file. */
struct copy {
    struct gb_snapshot_file *file;
    bool loads;
    uint64_t at;      /* in the file */
    char *chunk;      /* of CHUNK bytes, and some more */
    cJSON *sums;      /* saving: checksums are added here */
    const cJSON *sum; /* loading: the checksum of the next buffer */
    XXH3_state_t *state;
    const struct gb_series *items; /* of an array whose items do not lie one after the other */
    struct gb_error *error;
};

static const char *const whiches[] = {"data", "mask", "offsets"};

static void write_sum(XXH64_hash_t hash, char sum[GB_SNAPSHOT_SUM])
{
    (void)snprintf(sum, GB_SNAPSHOT_SUM, "%016" PRIx64, (uint64_t)hash);
}

void gb_snapshot_sum(const char *text, char sum[GB_SNAPSHOT_SUM])
{
    write_sum(XXH3_64bits(text, strlen(text)), sum);
}

static void start(struct copy *copy, struct gb_snapshot_file *file, struct gb_error *error)
{
    *copy = (struct copy){.file = file, .error = error};
    copy->chunk = gb_grow(NULL, CHUNK + ALIGN, 1);
    copy->state = XXH3_createState();
    if (!copy->state)
        gb_out_of_memory();
}

static void end(struct copy *copy)
{
    free(copy->chunk);
    XXH3_freeState(copy->state);
}

/* ---- files ---- */

/* Counts bytes as done; fails once a signal has come. */
static int step(struct copy *copy, uint64_t bytes)
{
    struct gb_snapshot_file *file = copy->file;

    copy->at += bytes;
    file->done += bytes;
    if (file->progress)
        gb_progress_update(file->progress, file->done);
    return file->stop && *file->stop ? gb_fail(copy->error, GPUBUF_E_CANCELED, "interrupted") : 0;
}

static int write_file(struct copy *copy, const char *bytes, uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        ssize_t count = write(copy->file->fd, bytes + done, (size_t)(length - done));
        if (count < 0 && errno != EINTR)
            return gb_fail_errno(copy->error, "cannot write %s", copy->file->path);
        done += count > 0 ? (uint64_t)count : 0;
    }
    return step(copy, length);
}

/* Writes the zeros up to where the next buffer begins, or goes past them. */
static int align(struct copy *copy)
{
    uint64_t gap = (ALIGN - copy->at % ALIGN) % ALIGN;

    if (copy->loads)
        return step(copy, gap);
    memset(copy->chunk, 0, ALIGN);
    return write_file(copy, copy->chunk, gap);
}

/* ---- buffers ---- */

/* Bytes `from` to `from + count` of an array's items in C order. */
static void gather(const struct gb_series *items, uint64_t from, char *bytes, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        uint64_t i = (from + done) / items->item_bytes, within = (from + done) % items->item_bytes;
        uint64_t length = items->item_bytes - within;
        length = length < count - done ? length : count - done;
        memcpy(bytes + done, gb_series_item(items, i) + within, length);
        done += length;
    }
}

/* Fetches the next `count` bytes of a part as the file is to have them. Returns a code of the
   library. */
static int fetch(struct copy *copy, const struct gb_stretch *part, uint64_t done, uint64_t count)
{
    struct gpubuf_memory memory = {0};

    if (copy->items && part->which == GPUBUF_DATA) {
        gather(copy->items, done, copy->chunk, count);
        return 0;
    }
    int code = gpubuf_memory(part->object, part->which, &memory);
    if (code < 0)
        return code;
    /* When bits are shifted, the last ones may come from one byte more. */
    bool more = part->shift > 0 && part->from + done + count < memory.bytes;
    copy->chunk[count] = 0;
    code =
        gpubuf_read(part->object, part->which, part->from + done, copy->chunk, count + more, NULL);
    gb_shift_bits((unsigned char *)copy->chunk, count, part->shift);
    gb_rebase(copy->chunk, count, part->width, part->base);
    return code;
}

static int check_sum(struct copy *copy, const struct gb_stretch *part, uint64_t begin)
{
    const char *name = gpubuf_column_name(part->object);
    char sum[GB_SNAPSHOT_SUM];

    write_sum(XXH3_64bits_digest(copy->state), sum);
    if (!copy->loads) {
        cJSON_AddItemToArray(copy->sums, cJSON_CreateString(sum));
        return 0;
    }
    bool same = cJSON_IsString(copy->sum) && strcmp(copy->sum->valuestring, sum) == 0;
    copy->sum = copy->sum ? copy->sum->next : NULL;
    if (same)
        return 0;
    return gb_fail(copy->error, GPUBUF_E_INVALID,
                   "%s is damaged between its bytes %" PRIu64 " and %" PRIu64 " (%s%s%.100s)",
                   copy->file->path, begin, begin + part->bytes, whiches[part->which],
                   name ? " of column " : "", name ? name : "");
}

/* Has a buffer filled by the library, then looks at what is there. */
static int load_stretch(struct copy *copy, const struct gb_stretch *part)
{
    struct gb_snapshot_file *file = copy->file;
    struct gpubuf_file_range range = {file->fd, copy->at, part->bytes, part->from};
    struct gpubuf_memory memory = {0};
    struct stat status;

    if (fstat(file->fd, &status) == 0 && (uint64_t)status.st_size < copy->at + part->bytes)
        return gb_fail(copy->error, GPUBUF_E_INVALID, "%s is cut short at byte %" PRIu64,
                       file->path, (uint64_t)status.st_size);
    if (part->bytes == 0)
        return 0;
    int code = gb_file_fill(part->object, part->which, &range, file->progress, file->done);
    if (code == 0)
        code = gpubuf_memory(part->object, part->which, &memory);
    bool here = gpubuf_device_ordinal(part->object) < 0;
    for (uint64_t done = 0; done < part->bytes && code == 0; done += CHUNK) {
        uint64_t count = part->bytes - done < CHUNK ? part->bytes - done : CHUNK;
        if (!here)
            code =
                gpubuf_read(part->object, part->which, part->from + done, copy->chunk, count, NULL);
        if (code == 0)
            XXH3_64bits_update(copy->state,
                               here ? (char *)memory.pointer + part->from + done : copy->chunk,
                               (size_t)count);
    }
    return code < 0 ? gb_fail_library(part->object, code, copy->error) : step(copy, part->bytes);
}

static int save_stretch(struct copy *copy, const struct gb_stretch *part)
{
    int r = 0;

    for (uint64_t done = 0; done < part->bytes && r == 0; done += CHUNK) {
        uint64_t count = part->bytes - done < CHUNK ? part->bytes - done : CHUNK;
        int code = fetch(copy, part, done, count);
        if (code < 0)
            return gb_fail_library(part->object, code, copy->error);
        XXH3_64bits_update(copy->state, copy->chunk, (size_t)count);
        r = write_file(copy, copy->chunk, count);
    }
    return r;
}

static int copy_stretch(void *user, const struct gb_stretch *part, struct gb_error *error)
{
    struct copy *copy = user;
    int r = align(copy);
    uint64_t begin = copy->at;

    (void)error; /* copy->error is the same */
    XXH3_64bits_reset(copy->state);
    if (r == 0)
        r = copy->loads ? load_stretch(copy, part) : save_stretch(copy, part);
    return r == 0 ? check_sum(copy, part, begin) : r;
}

/* ---- what of an object goes into a file ---- */

/* An array is written in C order, with its mask from its first element on. */
static int write_array(struct copy *copy, struct gpubuf_object *object, struct gb_layout *layout)
{
    struct gb_column *column = &layout->column;
    struct gb_series series = {0};
    struct gb_stretch data, mask;
    int r = gb_array_stretches(object, column, &mask, &data, copy->error);

    if (r == 0 && !layout->c_order && gb_dtype_packed(&column->dtype))
        r = gb_fail(copy->error, GPUBUF_E_UNSUPPORTED,
                    "its elements are packed, and do not lie one after the other");
    if (r == 0 && !layout->c_order)
        gb_series_init(&series, object);
    copy->items = layout->c_order ? NULL : &series;
    layout->c_order = true;
    if (r == 0 && column->mask.present)
        r = copy_stretch(copy, &mask, copy->error);
    if (r == 0)
        r = copy_stretch(copy, &data, copy->error);
    gb_series_end(&series);
    copy->items = NULL;
    return r;
}

int gb_snapshot_write(struct gb_snapshot_file *file, struct gpubuf_object *object,
                      struct gb_layout *layout, cJSON *sums, struct gb_error *error)
{
    struct copy copy;

    start(&copy, file, error);
    copy.sums = sums;
    int r = gpubuf_wait_ready(object, NULL);
    if (r < 0)
        r = gb_fail_library(object, r, error);
    else
        r = layout->kind == GB_KIND_ARRAY
                ? write_array(&copy, object, layout)
                : gb_column_stretches(object, &layout->column, true, copy_stretch, &copy, error);
    end(&copy);
    return r;
}

int gb_snapshot_read(struct gb_snapshot_file *file, struct gpubuf_object *object,
                     const struct gb_layout *layout, const cJSON *sums, struct gb_error *error)
{
    struct gb_column column = layout->column;
    struct stat status;
    struct copy copy;

    start(&copy, file, error);
    copy.loads = true;
    copy.sum = gb_cjson_first(sums);
    int r = gb_column_stretches(object, &column, false, copy_stretch, &copy, error);
    if (r == 0 && fstat(file->fd, &status) == 0 && (uint64_t)status.st_size != copy.at)
        r = gb_fail(error, GPUBUF_E_INVALID,
                    "%s goes on after byte %" PRIu64 ", where it should end", file->path, copy.at);
    end(&copy);
    return r;
}

/* ---- layouts ---- */

int gb_snapshot_layout(const char *text, struct gb_pool *pool, struct gb_layout *layout,
                       struct gb_error *error)
{
    struct gb_path path = {.key = "layout"};
    struct gb_json value;

    int r = gb_json_check(text, strlen(text), pool, &value, error);
    return r == 0 ? gb_layout_read(value, GB_LAYOUT_CREATE, &path, pool, layout, error) : r;
}

int gb_snapshot_create(struct gpubuf_client *client, const char *name,
                       const struct gb_layout *layout, const struct gpubuf_create_options *options,
                       struct gb_pool *pool, struct gpubuf_object **object)
{
    struct gpubuf_layout_spec spec;

    if (!gb_layout_spec(layout, pool, &spec))
        return GPUBUF_E_NO_MEMORY;
    return gpubuf_create(client, name, &spec, options, object);
}
