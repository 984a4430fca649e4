/*
 * Any bytes as a bundle's manifest: refused with a sentence, or each array lies inside, on its
 * own and of the right size, is found by its name, and a plan of the same arrays is read as the
 * same. With a space more, which is not the usual spelling, it is taken or refused alike.
 *
 * The first two bytes say how much data there is, the rest is the manifest.
 */
#include "client/lib/data/manifest.h"
#include "demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* `whole`: there are no gaps between tensors. */
static void check_tensors(const struct gb_manifest *manifest, bool whole)
{
    uint64_t bytes = GB_BUNDLE_PREFIX + manifest->manifest_bytes;

    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct gpubuf_tensor *tensor = &manifest->tensors[i];
        DEMAND(tensor->offset >= GB_BUNDLE_PREFIX + manifest->manifest_bytes);
        DEMAND(tensor->offset + tensor->bytes <= manifest->bytes);
        DEMAND(gb_manifest_find(manifest->tensor_names, manifest->tensor_count, tensor->name) ==
               (long)i);
        bytes += tensor->bytes; /* without overlaps or holes it is all of them */
    }
    DEMAND(whole ? bytes == manifest->bytes : bytes <= manifest->bytes);
    for (size_t i = 0; i < manifest->metadata_count; i++)
        DEMAND(gb_manifest_find(manifest->metadata_names, manifest->metadata_count,
                                manifest->metadata[i].key) == (long)i);
}

static bool same(const struct gpubuf_tensor *a, const struct gpubuf_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0 && a->ndim == b->ndim &&
           a->bytes == b->bytes &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0);
}

static void check_plan(const struct gb_manifest *manifest)
{
    size_t count = manifest->tensor_count, pairs = manifest->metadata_count;
    struct gpubuf_tensor_spec *specs = calloc(count + 1, sizeof(*specs));
    const char **metadata = calloc(2 * pairs + 1, sizeof(*metadata));
    struct gb_writer head = {.data = NULL};
    struct gb_manifest again;
    struct gb_error error;

    DEMAND(specs && metadata);
    for (size_t i = 0; i < count; i++) {
        const struct gpubuf_tensor *tensor = &manifest->tensors[i];
        specs[i] =
            (struct gpubuf_tensor_spec){tensor->name, tensor->dtype, tensor->ndim, tensor->shape};
    }
    for (size_t i = 0; i < pairs; i++) {
        metadata[2 * i] = manifest->metadata[i].key;
        metadata[2 * i + 1] = manifest->metadata[i].value;
    }
    DEMAND(gb_manifest_plan(specs, count, metadata, &head, &again, &error) == 0);
    check_tensors(&again, true);
    DEMAND(again.tensor_count == count && again.metadata_count == pairs);
    for (size_t i = 0; i < count; i++) {
        DEMAND(same(&manifest->tensors[i], &again.tensors[i]));
        for (uint64_t align = 1; align <= 256 && again.tensors[i].bytes % align == 0; align *= 2)
            DEMAND(again.tensors[i].offset % align == 0);
    }
    for (size_t i = 0; i < pairs; i++)
        DEMAND(strcmp(manifest->metadata[i].value, again.metadata[i].value) == 0);
    gb_manifest_end(&again);
    gb_writer_end(&head);
    free(metadata);
    free(specs);
}

static void check_spaced(const char *text, uint64_t length, uint64_t bytes, int r,
                         const struct gb_manifest *manifest)
{
    struct gb_manifest spaced;
    char *copy = malloc(length + 1);

    DEMAND(copy);
    memcpy(copy, "{ ", 2);
    memcpy(copy + 2, text + 1, length - 1);
    DEMAND(gb_manifest_read(copy, length + 1, bytes + 1, &spaced, NULL) == r);
    free(copy);
    if (r < 0)
        return;
    DEMAND(spaced.tensor_count == manifest->tensor_count);
    for (size_t i = 0; i < spaced.tensor_count; i++)
        DEMAND(same(&spaced.tensors[i], &manifest->tensors[i]) &&
               spaced.tensors[i].offset == manifest->tensors[i].offset + 1);
    gb_manifest_end(&spaced);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_error error = {.code = 0};
    struct gb_manifest manifest;

    if (size < 2)
        return 0;
    uint64_t length = size - 2, bytes = GB_BUNDLE_PREFIX + length + data[0] + 256u * data[1];
    char *text = malloc(length ? length : 1); /* of the exact size */
    DEMAND(text);
    memcpy(text, data + 2, length);
    bool gaps = memmem(text, length, GB_MANIFEST_GAP, strlen(GB_MANIFEST_GAP)) ||
                memchr(text, '\\', length); /* which may write the same */
    int r = gb_manifest_read(text, length, bytes, &manifest, &error);
    if (length > 0 && text[0] == '{')
        check_spaced(text, length, bytes, r, &manifest);
    free(text);
    if (r < 0) {
        DEMAND(error.code == r && error.message[0]);
        DEMAND(gb_utf8_valid(error.message, strlen(error.message)));
        return 0;
    }
    check_tensors(&manifest, !gaps);
    check_plan(&manifest);
    gb_manifest_end(&manifest);
    return 0;
}
