#include "client/lib/data/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/base/limits.h"
#include "proto/layout/dtype.h"

#define METADATA "__metadata__"
/* A planned bundle's data, and its large arrays, begin at a multiple of this. */
#define DATA_ALIGN 256u
#define HUGE_BYTES ((size_t)2 << 20)
#define ULL(value) ((unsigned long long)(value))

void *gb_manifest_memory(size_t bytes)
{
    size_t whole = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    void *memory = bytes < HUGE_BYTES ? malloc(bytes + 1) : aligned_alloc(HUGE_BYTES, whole);

    if (memory && bytes >= HUGE_BYTES)
        (void)madvise(memory, whole, MADV_HUGEPAGE);
    return memory;
}

/* The bytes of an array: whole ones, and fewer than 2^52. */
static int measure(enum gb_type type, const uint64_t *shape, unsigned ndim, uint64_t *bytes,
                   struct gb_error *error)
{
    uint64_t bits = gb_type_info(type)->bits;
    bool empty = false;

    for (unsigned i = 0; i < ndim; i++)
        empty = empty || shape[i] == 0;
    for (unsigned i = 0; i < ndim && !empty; i++) {
        if (__builtin_mul_overflow(bits, shape[i], &bits) || bits / 8 > GB_LIMIT(integer))
            return gb_fail(error, GPUBUF_E_INVALID, "shape: the array has 2^52 bytes or more");
    }
    if (!empty && bits % 8 != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "shape: its elements of %u bits are no whole bytes",
                       gb_type_info(type)->bits);
    *bytes = empty ? 0 : bits / 8;
    return 0;
}

/* ---- one tensor ---- */

struct raw_tensor {
    struct gb_string dtype;
    struct gb_json shape, data_offsets;
};

static const struct gb_field tensor_fields[] = {
    GB_FIELD(struct raw_tensor, dtype, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_tensor, shape, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_tensor, data_offsets, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
};

static bool is_dtype(enum gb_type type, const char *text, size_t length)
{
    const char *name = gb_type_info(type)->safetensors;

    return name && strncmp(name, text, length) == 0 && !name[length];
}

/* *type is a guess at first: most tensors have the dtype of the one before. */
static bool find_dtype(const char *text, size_t length, enum gb_type *type)
{
    bool found = is_dtype(*type, text, length);

    for (int i = 0; !found && i < GB_TYPE_COUNT; i++) {
        *type = (enum gb_type)i;
        found = is_dtype(*type, text, length);
    }
    return found;
}

static int read_dtype(const struct gb_string *text, enum gb_type *type, struct gb_error *error)
{
    if (find_dtype(text->text, text->length, type))
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID, "dtype: unknown dtype \"%.80s\"", text->text);
}

static int read_integers(struct gb_json list, const char *member, uint64_t *out,
                         struct gb_error *error)
{
    struct gb_path path = {.key = member};
    struct gb_json_walk walk = gb_json_walk(list);
    struct gb_json item;
    int r = 0;

    for (size_t i = 0; r == 0 && gb_json_next(&walk, NULL, &item); i++) {
        struct gb_path step = {.up = &path, .index = i};
        r = gb_json_uint(item, 0, GB_LIMIT(integer), &step, &out[i], error);
    }
    return r;
}

/* The state of one reading. `texts` is for strings that are not kept. */
struct reading {
    struct gb_manifest *manifest;
    struct gb_pool texts;
    struct gb_error *error;
};

/* Checks the place of a tensor, and notes where it is in the bundle. */
static int place_tensor(const struct reading *reading, const uint64_t *places,
                        struct gpubuf_tensor *tensor)
{
    const struct gb_manifest *manifest = reading->manifest;
    uint64_t start = GB_BUNDLE_PREFIX + manifest->manifest_bytes;
    uint64_t data = manifest->bytes - start;

    if (places[0] > places[1])
        return gb_fail(reading->error, GPUBUF_E_INVALID,
                       "data_offsets: it begins at %llu, behind its end at %llu", ULL(places[0]),
                       ULL(places[1]));
    if (places[1] > data)
        return gb_fail(reading->error, GPUBUF_E_INVALID,
                       "data_offsets: it ends at byte %llu of the data, which has %llu",
                       ULL(places[1]), ULL(data));
    if (places[1] - places[0] != tensor->bytes)
        return gb_fail(reading->error, GPUBUF_E_INVALID,
                       "data_offsets: %llu bytes, but its dtype and shape make %llu",
                       ULL(places[1] - places[0]), ULL(tensor->bytes));
    tensor->offset = start + places[0];
    return 0;
}

static int read_places(const struct reading *reading, struct gb_json offsets,
                       struct gpubuf_tensor *tensor)
{
    uint64_t places[2];
    int r;

    if (gb_json_count(offsets) != 2)
        return gb_fail(reading->error, GPUBUF_E_INVALID,
                       "data_offsets: expected 2 integers, found %zu", gb_json_count(offsets));
    r = read_integers(offsets, "data_offsets", places, reading->error);
    return r < 0 ? r : place_tensor(reading, places, tensor);
}

static int read_tensor(struct reading *reading, struct gb_json value, struct gpubuf_tensor *tensor)
{
    struct raw_tensor raw = {.dtype = {NULL, 0}};
    enum gb_type type = GB_TYPE_NULL;
    uint64_t *shape;
    size_t ndim;
    int r;

    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail(reading->error, GPUBUF_E_INVALID, "expected an object, found %s",
                       gb_json_type_name(gb_json_type(value)));
    r = gb_json_read(value, tensor_fields, 3, GB_UNKNOWN_IGNORE, NULL, &reading->texts, &raw, NULL,
                     reading->error);
    if (r == 0)
        r = read_dtype(&raw.dtype, &type, reading->error);
    if (r < 0)
        return r;
    ndim = gb_json_count(raw.shape);
    if (ndim > GB_LIMIT(ndim))
        return gb_fail(reading->error, GPUBUF_E_INVALID, "shape: %zu axes; at most %d are allowed",
                       ndim, (int)GB_LIMIT(ndim));
    shape = gb_pool_calloc(&reading->manifest->pool, ndim, sizeof(*shape));
    if (!shape)
        return gb_fail_memory(reading->error);
    r = read_integers(raw.shape, "shape", shape, reading->error);
    if (r == 0)
        r = measure(type, shape, (unsigned)ndim, &tensor->bytes, reading->error);
    if (r < 0)
        return r;
    tensor->dtype = gb_type_info(type)->name;
    tensor->ndim = (unsigned)ndim;
    tensor->shape = shape;
    return read_places(reading, raw.data_offsets, tensor);
}

/* ---- all of them ---- */

/* Puts the tensor's name, as it stands in the text, before the sentence. */
static int say_which(struct gb_json key, int code, struct gb_error *error)
{
    size_t length = gb_json_length(key), shown = length > 80 ? 80 : length;

    if (!error || code != GPUBUF_E_INVALID)
        return code;
    while (shown < length && ((unsigned char)key.text[shown] & 0xc0) == 0x80)
        shown--;
    struct gb_error inner = *error;
    return gb_fail(error, code, "tensor %.*s%s: %s", (int)shown, key.text,
                   shown < length ? "…" : "", inner.message);
}

static int read_metadata(struct reading *reading, struct gb_json value)
{
    struct gb_manifest *manifest = reading->manifest;
    struct gb_path path = {.key = METADATA};
    struct gb_json_walk walk;
    struct gb_json key, item;
    struct gb_string text;
    int r = 0;

    if (manifest->metadata)
        return gb_fail_at(reading->error, &path, "occurs twice");
    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail_at(reading->error, &path, "expected an object, found %s",
                          gb_json_type_name(gb_json_type(value)));
    walk = gb_json_walk(value);
    size_t count = gb_json_count(value);
    manifest->metadata = gb_pool_calloc(&manifest->pool, count, sizeof(*manifest->metadata));
    manifest->metadata_names =
        gb_pool_calloc(&manifest->pool, count, sizeof(*manifest->metadata_names));
    if (!manifest->metadata || !manifest->metadata_names)
        return gb_fail_memory(reading->error);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        r = gb_json_string(key, 0, &path, &manifest->pool, &text, reading->error);
        if (r < 0)
            return r;
        struct gb_path step = {.up = &path, .key = text.text};
        manifest->metadata_names[i] = (struct gb_named){.name = text.text, .i = i};
        manifest->metadata[i].key = text.text;
        r = gb_json_string(item, 0, &step, &manifest->pool, &text, reading->error);
        if (r < 0)
            return r;
        manifest->metadata[i].value = text.text;
    }
    manifest->metadata_count = count;
    return gb_manifest_sort(manifest->metadata_names, count, METADATA ": the key", &manifest->pool,
                            reading->error);
}

static int read_members(struct reading *reading, struct gb_json value)
{
    struct gb_manifest *manifest = reading->manifest;
    struct gb_json_walk walk = gb_json_walk(value);
    size_t members = gb_json_count(value);
    struct gb_json key, item;
    struct gb_string name;
    int r = 0;

    manifest->tensors = gb_pool_calloc(&manifest->pool, members, sizeof(*manifest->tensors));
    manifest->tensor_names =
        gb_pool_calloc(&manifest->pool, members, sizeof(*manifest->tensor_names));
    if (!manifest->tensors || !manifest->tensor_names)
        return gb_fail_memory(reading->error);
    while (r == 0 && gb_json_next(&walk, &key, &item)) {
        size_t i = manifest->tensor_count;
        r = gb_json_string(key, 0, NULL, &manifest->pool, &name, reading->error);
        if (r == 0 && strcmp(name.text, METADATA) == 0) {
            r = read_metadata(reading, item);
            continue;
        }
        if (r == 0)
            r = read_tensor(reading, item, &manifest->tensors[i]);
        if (r < 0)
            return say_which(key, r, reading->error);
        gb_pool_reset(&reading->texts);
        manifest->tensors[i].name = name.text;
        manifest->tensor_names[i] = (struct gb_named){.name = name.text, .i = i};
        manifest->tensor_count++;
    }
    return r < 0 ? r
                 : gb_manifest_sort(manifest->tensor_names, manifest->tensor_count, "tensor",
                                    &manifest->pool, reading->error);
}

/* ---- the usual spelling ---- */

/*
 * Safetensors and gb_manifest_plan write no spaces, the members of a tensor in one order, and names
 * that are hardly ever more than plain ASCII. Such text is read in one pass, without a tape. The
 * pass accepts nothing that the reading above refuses; text that it does not understand is left to
 * that.
 */
struct scan {
    const char *at, *end;
    size_t room;       /* for tensors */
    enum gb_type type; /* of the last tensor */
};

#define TENSOR_LEAST (sizeof("\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,0]}") - 1)

static inline bool scan_text(struct scan *scan, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, text, length) != 0)
        return false;
    scan->at += length;
    return true;
}

#define EACH_BYTE(byte) (UINT64_MAX / 255 * (byte))

/* Whether one of eight bytes is no printable ASCII, or a backslash. (A borrow only changes bytes
   behind one that is.) */
static inline bool has_other(uint64_t word)
{
    uint64_t backslash = word ^ EACH_BYTE('\\'), delete = word ^ EACH_BYTE(0x7f);

    return (word | (word - EACH_BYTE(' ')) | (backslash - EACH_BYTE(1)) | (delete - EACH_BYTE(1))) &
           EACH_BYTE(0x80);
}

/* A string, from behind its first quote: plain ASCII without escapes. */
static bool scan_string(struct scan *scan, struct gb_string *string)
{
    const char *start = scan->at, *at = start;
    const char *quote = memchr(start, '"', (size_t)(scan->end - start));
    uint64_t word;

    if (!quote)
        return false;
    for (; quote - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        if (has_other(word))
            return false;
    }
    word = EACH_BYTE(' ');
    memcpy(&word, at, (size_t)(quote - at));
    if (has_other(word))
        return false;
    *string = (struct gb_string){start, (size_t)(quote - start)};
    scan->at = quote + 1;
    return true;
}

static inline bool scan_uint(struct scan *scan, uint64_t *value)
{
    const char *start = scan->at, *at = start;
    const char *end = scan->end - start > 16 ? start + 16 : scan->end;
    uint64_t read = 0;

    for (; at < end && (unsigned char)(*at - '0') < 10; at++)
        read = 10 * read + (uint64_t)(*at - '0');
    scan->at = at;
    *value = read; /* a 17th digit fails the caller, which expects a comma or a bracket */
    return at > start && (*start != '0' || at == start + 1) && read <= GB_LIMIT(integer);
}

/* A list, from behind its first bracket. */
static bool scan_uints(struct scan *scan, uint64_t *values, unsigned most, unsigned *count)
{
    for (*count = 0; !scan_text(scan, "]"); ++*count) {
        if (*count == most || (*count > 0 && !scan_text(scan, ",")) ||
            !scan_uint(scan, &values[*count]))
            return false;
    }
    return true;
}

/* A tensor's members; its offsets go to `places`, unchecked. */
static bool scan_tensor(struct scan *scan, uint64_t *shape, unsigned *ndim, uint64_t *places)
{
    struct gb_string dtype;
    unsigned count;

    return scan_text(scan, "{\"dtype\":\"") && scan_string(scan, &dtype) &&
           find_dtype(dtype.text, dtype.length, &scan->type) && scan_text(scan, ",\"shape\":[") &&
           scan_uints(scan, shape, GB_LIMIT(ndim), ndim) &&
           scan_text(scan, ",\"data_offsets\":[") && scan_uints(scan, places, 2, &count) &&
           count == 2 && scan_text(scan, "}");
}

/* Most tensors of many have the shape of the one before. */
static const uint64_t *keep_shape(struct gb_manifest *manifest, const uint64_t *shape,
                                  unsigned ndim)
{
    size_t bytes = ndim * sizeof(*shape);
    size_t count = manifest->tensor_count;
    const struct gpubuf_tensor *before = count > 0 ? &manifest->tensors[count - 1] : NULL;

    if (before && before->ndim == ndim && memcmp(before->shape, shape, bytes) == 0)
        return before->shape;
    uint64_t *kept = gb_pool_alloc(&manifest->pool, bytes);
    if (kept)
        memcpy(kept, shape, bytes);
    return kept;
}

/* 1: the tensor is spelled in another way, or wrong. */
static int add_tensor(struct reading *reading, struct scan *scan, struct gb_string name)
{
    struct gb_manifest *manifest = reading->manifest;
    struct gpubuf_tensor *tensor = &manifest->tensors[manifest->tensor_count];
    uint64_t shape[GB_LIMIT(ndim)], places[2];
    unsigned ndim = 0;

    if (manifest->tensor_count == scan->room || !scan_tensor(scan, shape, &ndim, places) ||
        measure(scan->type, shape, ndim, &tensor->bytes, reading->error) < 0 ||
        place_tensor(reading, places, tensor) < 0)
        return 1;
    tensor->pointer = NULL;
    tensor->dtype = gb_type_info(scan->type)->name;
    tensor->ndim = ndim;
    tensor->name = gb_pool_strndup(&manifest->pool, name.text, name.length);
    tensor->shape = keep_shape(manifest, shape, ndim);
    if (!tensor->name || !tensor->shape)
        return gb_fail_memory(reading->error);
    manifest->tensor_names[manifest->tensor_count] =
        (struct gb_named){.name = tensor->name, .i = manifest->tensor_count};
    manifest->tensor_count++;
    return 0;
}

/* Metadata, spelled in any way. */
static int add_metadata(struct reading *reading, struct scan *scan)
{
    const char *start = scan->at;
    struct gb_pool tape = {.chunks = NULL};
    struct gb_json value;
    bool quoted = false;
    int r;

    for (; scan->at < scan->end && (quoted || *scan->at != '}'); scan->at++) {
        if (quoted && *scan->at == '\\' && scan->at + 1 < scan->end)
            scan->at++;
        else if (*scan->at == '"')
            quoted = !quoted;
    }
    if (!scan_text(scan, "}"))
        return 1;
    r = gb_json_check(start, (size_t)(scan->at - start), &tape, &value, reading->error);
    if (r == 0)
        r = read_metadata(reading, value);
    gb_pool_end(&tape);
    return r < 0 && r != GPUBUF_E_NO_MEMORY ? 1 : r;
}

static int scan_members(struct reading *reading, struct scan *scan)
{
    struct gb_string name;
    bool first = true;
    int r = 0;

    for (; r == 0 && !scan_text(scan, "}"); first = false) {
        if ((!first && !scan_text(scan, ",")) || !scan_text(scan, "\"") ||
            !scan_string(scan, &name) || !scan_text(scan, ":"))
            return 1;
        if (name.length == strlen(METADATA) && memcmp(name.text, METADATA, name.length) == 0)
            r = add_metadata(reading, scan);
        else
            r = add_tensor(reading, scan, name);
    }
    while (scan->at < scan->end && *scan->at == ' ')
        scan->at++;
    return r != 0 ? r : scan->at < scan->end;
}

/* 1: the text is for read_text; nothing has been read then. */
static int scan_usual(struct reading *reading, const char *text, uint64_t length)
{
    struct gb_manifest *manifest = reading->manifest, before = *manifest;
    struct scan scan = {.at = text, .end = text + length};
    int r;

    if (!scan_text(&scan, "{"))
        return 1;
    for (const char *at = scan.at; scan.room < length / TENSOR_LEAST; at++, scan.room++) {
        at = memchr(at, '{', (size_t)(scan.end - at));
        if (!at)
            break;
    }
    size_t tensors = scan.room * sizeof(*manifest->tensors);
    size_t names = scan.room * sizeof(*manifest->tensor_names);
    size_t whole = tensors + 3 * names + length / 2; /* with what the sort of the names needs */
    manifest->memory = gb_manifest_memory(whole);
    if (!manifest->memory)
        return gb_fail_memory(reading->error);
    gb_pool_lend(&manifest->pool, manifest->memory, whole);
    manifest->tensors = gb_pool_alloc(&manifest->pool, tensors);
    manifest->tensor_names = gb_pool_alloc(&manifest->pool, names);
    if (!manifest->tensors || !manifest->tensor_names)
        return gb_fail_memory(reading->error);
    r = scan_members(reading, &scan);
    if (r == 0)
        return gb_manifest_sort(manifest->tensor_names, manifest->tensor_count, "tensor",
                                &manifest->pool, reading->error);
    if (r > 0) {
        gb_manifest_end(manifest);
        *manifest = before;
    }
    return r;
}

/* ---- all of it ---- */

/* By where tensors begin, then by their size: an empty one comes before another at its place. */
static int compare_tensors(const struct gpubuf_tensor *left, const struct gpubuf_tensor *right)
{
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static int compare_places(const void *a, const void *b)
{
    return compare_tensors(*(const struct gpubuf_tensor *const *)a,
                           *(const struct gpubuf_tensor *const *)b);
}

/* Checks that each byte of the data belongs to one tensor. */
static int check_places(struct reading *reading)
{
    const struct gb_manifest *manifest = reading->manifest;
    uint64_t start = GB_BUNDLE_PREFIX + manifest->manifest_bytes, end = start;
    size_t count = manifest->tensor_count;
    const struct gpubuf_tensor *before = NULL, **order = NULL;
    bool sorted = true; /* as most are */

    for (size_t i = 1; i < count && sorted; i++)
        sorted = compare_tensors(&manifest->tensors[i - 1], &manifest->tensors[i]) <= 0;
    if (!sorted) {
        order = gb_pool_calloc(&reading->texts, count, sizeof(*order));
        if (!order)
            return gb_fail_memory(reading->error);
        for (size_t i = 0; i < count; i++)
            order[i] = &manifest->tensors[i];
        qsort(order, count, sizeof(*order), compare_places);
    }
    for (size_t i = 0; i < count; i++) {
        const struct gpubuf_tensor *tensor = order ? order[i] : &manifest->tensors[i];
        if (before && tensor->offset < end)
            return gb_fail(reading->error, GPUBUF_E_INVALID,
                           "tensor \"%.80s\": its data begins at byte %llu, inside that of "
                           "\"%.80s\", which ends at %llu",
                           tensor->name, ULL(tensor->offset - start), before->name,
                           ULL(end - start));
        if (tensor->offset > end)
            return gb_fail(reading->error, GPUBUF_E_INVALID,
                           "tensor \"%.80s\": its data begins at byte %llu, and bytes from %llu to "
                           "there are no tensor's",
                           tensor->name, ULL(tensor->offset - start), ULL(end - start));
        end = tensor->offset + tensor->bytes;
        before = tensor;
    }
    if (end != manifest->bytes)
        return gb_fail(reading->error, GPUBUF_E_INVALID,
                       "the data has %llu bytes, but the tensors only %llu",
                       ULL(manifest->bytes - start), ULL(end - start));
    return 0;
}

static int read_text(struct reading *reading, const char *text, uint64_t length)
{
    struct gb_pool tape = {.chunks = NULL};
    struct gb_json value;
    int r = gb_json_check(text, length, &tape, &value, reading->error);

    if (r == GPUBUF_E_PARSE) {
        struct gb_error inner = reading->error ? *reading->error : (struct gb_error){.code = 0};
        r = gb_fail(reading->error, GPUBUF_E_INVALID, "the manifest is not JSON: %s",
                    inner.message);
    }
    if (r == 0 && (gb_json_type(value) != GB_JSON_OBJECT || text[0] != '{'))
        r = gb_fail(reading->error, GPUBUF_E_INVALID,
                    "the manifest is no object that begins with '{' at its first byte");
    if (r == 0)
        r = read_members(reading, value);
    gb_pool_end(&tape);
    return r;
}

int gb_manifest_read(const char *text, uint64_t length, uint64_t bytes,
                     struct gb_manifest *manifest, struct gb_error *error)
{
    struct gb_manifest made = {.bytes = bytes, .manifest_bytes = length};
    struct reading reading = {.manifest = &made, .error = error};
    int r;

    if (length == 0 || length > GB_MANIFEST_MAX)
        return gb_fail(error, GPUBUF_E_INVALID, "a manifest of %llu bytes; it has from 1 to %u",
                       ULL(length), GB_MANIFEST_MAX);
    if (bytes > GB_LIMIT(integer) || bytes < GB_BUNDLE_PREFIX + length)
        return gb_fail(
            error, GPUBUF_E_INVALID,
            "a bundle of %llu bytes has no room for a manifest of %llu, and %u before it",
            ULL(bytes), ULL(length), GB_BUNDLE_PREFIX);
    r = scan_usual(&reading, text, length);
    if (r > 0)
        r = read_text(&reading, text, length);
    if (r == 0)
        r = check_places(&reading);
    if (r == 0)
        r = gb_manifest_forget_gaps(&made, error);
    gb_pool_end(&reading.texts);
    if (r < 0) {
        gb_manifest_end(&made);
        return r;
    }
    *manifest = made;
    return 0;
}

void gb_manifest_end(struct gb_manifest *manifest)
{
    gb_pool_end(&manifest->pool);
    free(manifest->memory);
}

/* ---- making one ---- */

struct planned {
    const char *dtype; /* safetensors' */
    uint64_t begin, bytes;
};

static int plan_tensor(const struct gpubuf_tensor_spec *spec, struct planned *planned,
                       struct gb_error *error)
{
    struct gb_error inner = {.code = 0};
    struct gb_dtype dtype;
    int r;

    if (!spec->name || !gb_utf8_valid(spec->name, strlen(spec->name)) ||
        strcmp(spec->name, METADATA) == 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the name of a tensor is UTF-8, and not \"" METADATA "\"");
    if (strncmp(spec->name, GB_MANIFEST_GAP, strlen(GB_MANIFEST_GAP)) == 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "tensor \"%.80s\": a name must not begin with \"" GB_MANIFEST_GAP "\"",
                       spec->name);
    if (!spec->dtype || !gb_dtype_parse(spec->dtype, strlen(spec->dtype), &dtype))
        return gb_fail(error, GPUBUF_E_INVALID, "tensor \"%.80s\": unknown dtype \"%.80s\"",
                       spec->name, spec->dtype ? spec->dtype : "");
    planned->dtype = gb_type_info(dtype.type)->safetensors;
    if (!planned->dtype)
        return gb_fail(error, GPUBUF_E_INVALID, "tensor \"%.80s\": safetensors has no %s",
                       spec->name, spec->dtype);
    if (spec->ndim > GB_LIMIT(ndim) || (spec->ndim && !spec->shape))
        return gb_fail(error, GPUBUF_E_INVALID, "tensor \"%.80s\": its shape has at most %d axes",
                       spec->name, (int)GB_LIMIT(ndim));
    r = measure(dtype.type, spec->shape, spec->ndim, &planned->bytes, &inner);
    return r == 0 ? 0 : gb_fail(error, r, "tensor \"%.80s\": %s", spec->name, inner.message);
}

/* The largest power of two, up to DATA_ALIGN, that divides it. */
static uint64_t alignment(uint64_t bytes)
{
    uint64_t lowest = bytes & (~bytes + 1);

    return lowest == 0 || lowest > DATA_ALIGN ? DATA_ALIGN : lowest;
}

/*
 * Places the arrays without holes: first those whose size is a multiple of 256 bytes, then those of
 * 128, and so on. So each begins at a multiple of the alignment of its own size, which is never
 * less than that of an element.
 */
static uint64_t place(struct planned *planned, size_t count)
{
    uint64_t at = 0;

    for (uint64_t align = DATA_ALIGN; align > 0; align /= 2) {
        for (size_t i = 0; i < count; i++) {
            if (alignment(planned[i].bytes) != align)
                continue;
            planned[i].begin = at;
            if (__builtin_add_overflow(at, planned[i].bytes, &at))
                return UINT64_MAX;
        }
    }
    return at;
}

static int write_metadata(struct gb_writer *writer, const char *const *metadata,
                          struct gb_error *error)
{
    for (size_t i = 0; metadata && metadata[i]; i += 2) {
        const char *key = metadata[i], *value = metadata[i + 1];
        if (!value || !gb_utf8_valid(key, strlen(key)) || !gb_utf8_valid(value, strlen(value)))
            return gb_fail(error, GPUBUF_E_INVALID, "metadata are not pairs of UTF-8 strings");
        gb_write_text(writer, i ? "," : "\"" METADATA "\":{");
        gb_write_cstring(writer, key);
        gb_write_char(writer, ':');
        gb_write_cstring(writer, value);
    }
    if (metadata && metadata[0])
        gb_write_char(writer, '}');
    return 0;
}

static void write_tensor(struct gb_writer *writer, const struct gpubuf_tensor_spec *spec,
                         const struct planned *planned)
{
    gb_write_cstring(writer, spec->name);
    gb_write_text(writer, ":{\"dtype\":\"");
    gb_write_text(writer, planned->dtype);
    gb_write_text(writer, "\",\"shape\":[");
    for (unsigned i = 0; i < spec->ndim; i++) {
        if (i)
            gb_write_char(writer, ',');
        gb_write_uint(writer, spec->shape[i]);
    }
    gb_write_text(writer, "],\"data_offsets\":[");
    gb_write_uint(writer, planned->begin);
    gb_write_char(writer, ',');
    gb_write_uint(writer, planned->begin + planned->bytes);
    gb_write_text(writer, "]}");
}

/* Writes the length, the manifest, and spaces up to where the data begins. */
static int write_head(struct gb_writer *head, const struct gpubuf_tensor_spec *tensors,
                      const struct planned *planned, size_t count, const char *const *metadata,
                      struct gb_error *error)
{
    int r;

    gb_write(head, "        {", GB_BUNDLE_PREFIX + 1);
    r = write_metadata(head, metadata, error);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        if (i || (metadata && metadata[0]))
            gb_write_char(head, ',');
        write_tensor(head, &tensors[i], &planned[i]);
    }
    gb_write_char(head, '}');
    while (!head->failed && head->length % DATA_ALIGN != 0)
        gb_write_char(head, ' ');
    if (head->failed)
        return gb_fail_memory(error);
    for (unsigned i = 0; i < GB_BUNDLE_PREFIX; i++)
        head->data[i] = (char)((head->length - GB_BUNDLE_PREFIX) >> 8 * i);
    return 0;
}

int gb_manifest_plan(const struct gpubuf_tensor_spec *tensors, size_t count,
                     const char *const *metadata, struct gb_writer *head,
                     struct gb_manifest *manifest, struct gb_error *error)
{
    struct planned *planned = calloc(count + 1, sizeof(*planned));
    uint64_t bytes = 0;
    int r = planned ? 0 : gb_fail_memory(error);

    for (size_t i = 0; i < count && r == 0; i++)
        r = plan_tensor(&tensors[i], &planned[i], error);
    if (r == 0) {
        bytes = place(planned, count);
        r = write_head(head, tensors, planned, count, metadata, error);
    }
    free(planned);
    if (r < 0)
        return r;
    if (__builtin_add_overflow(bytes, head->length, &bytes))
        bytes = UINT64_MAX;
    return gb_manifest_read(head->data + GB_BUNDLE_PREFIX, head->length - GB_BUNDLE_PREFIX, bytes,
                            manifest, error);
}
