#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/data/manifest.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/report.h"

struct gpubuf_bundle {
    struct gb_manifest manifest;
    struct gpubuf_object *object; /* with a reference; NULL: none */
    struct gb_writer head;        /* of a planned bundle; else empty */
};

static struct gpubuf_bundle *bundle_new(const struct gpubuf_client *client)
{
    struct gpubuf_bundle *bundle = calloc(1, sizeof(*bundle));

    if (!bundle)
        (void)gb_report_memory(client);
    return bundle;
}

void gpubuf_bundle_free(struct gpubuf_bundle *bundle)
{
    if (!bundle)
        return;
    gb_manifest_end(&bundle->manifest);
    gb_writer_end(&bundle->head);
    gpubuf_release(bundle->object);
    free(bundle);
}

/* Hands the made bundle over, or frees it after a failure. */
static int finish(struct gpubuf_bundle *made, int r, const struct gpubuf_client *client,
                  const struct gb_error *error, struct gpubuf_bundle **bundle)
{
    if (r < 0) {
        gpubuf_bundle_free(made);
        return gb_report(client, error);
    }
    *bundle = made;
    return 0;
}

/*
 * Copies the first bytes of a bundle. Another process may have the memory mapped for writing, and
 * the manifest must not change while it is read.
 */
int gb_bundle_copy_head(struct gpubuf_object *object, uint64_t bytes, unsigned char **head)
{
    const struct gpubuf_client *client = object->lease->client;
    int r = 0;

    if (bytes > GB_BUNDLE_PREFIX + GB_MANIFEST_MAX)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "%s has a manifest of %" PRIu64 " bytes; at most %u are read",
                              object->lease->name, bytes - GB_BUNDLE_PREFIX, GB_MANIFEST_MAX);
    unsigned char *copy = gb_manifest_memory((size_t)bytes);
    if (!copy)
        return gb_report_memory(client);
    if (atomic_load(&object->lease->state) != GB_LEASE_OPEN)
        r = gpubuf_wait_ready(object, NULL);
    if (r == 0)
        r = gpubuf_read(object, GPUBUF_DATA, 0, copy, bytes, NULL);
    if (r < 0) {
        free(copy);
        return r;
    }
    *head = copy;
    return 0;
}

int gb_bundle_read_head(const struct gb_layout *layout, const unsigned char *head,
                        struct gb_manifest *manifest, struct gb_error *error)
{
    uint64_t said = 0;

    for (unsigned i = 0; i < GB_BUNDLE_PREFIX; i++)
        said |= (uint64_t)head[i] << 8 * i;
    if (said != layout->manifest_bytes)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "its first 8 bytes say that the manifest has %" PRIu64
                       " bytes, and its layout says %" PRIu64,
                       said, layout->manifest_bytes);
    return gb_manifest_read((const char *)head + GB_BUNDLE_PREFIX, said, layout->bytes, manifest,
                            error);
}

int gpubuf_bundle_open(struct gpubuf_object *object, struct gpubuf_bundle **bundle)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    const struct gpubuf_client *client = object->lease->client;
    const struct gb_layout *layout = &object->lease->layout;
    struct gpubuf_memory memory;
    struct gb_error error, inner;
    unsigned char *head = NULL;

    if (object->kind != GPUBUF_KIND_BUNDLE)
        return gb_report_text(client, GPUBUF_E_INVALID, "%s is no bundle", object->lease->name);
    r = gpubuf_memory(object, GPUBUF_DATA, &memory);
    if (r == 0)
        r = gb_bundle_copy_head(object, GB_BUNDLE_PREFIX + layout->manifest_bytes, &head);
    if (r < 0)
        return r;
    struct gpubuf_bundle *made = bundle_new(client);
    if (!made) {
        free(head);
        return GPUBUF_E_NO_MEMORY;
    }
    made->object = gpubuf_retain(object);
    r = gb_bundle_read_head(layout, head, &made->manifest, &inner);
    free(head);
    if (r < 0)
        r = gb_fail(&error, r, "%s: %s", object->lease->name, inner.message);
    for (size_t i = 0; r == 0 && i < made->manifest.tensor_count; i++) {
        struct gpubuf_tensor *tensor = &made->manifest.tensors[i];
        tensor->pointer = (char *)memory.pointer + tensor->offset;
    }
    return finish(made, r, client, &error, bundle);
}

int gpubuf_bundle_parse(const char *manifest, uint64_t manifest_bytes, uint64_t bytes,
                        struct gpubuf_bundle **bundle)
{
    struct gb_error error;

    if (!manifest)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the manifest is NULL");
    struct gpubuf_bundle *made = bundle_new(NULL);
    if (!made)
        return GPUBUF_E_NO_MEMORY;
    int r = gb_manifest_read(manifest, manifest_bytes, bytes, &made->manifest, &error);
    return finish(made, r, NULL, &error, bundle);
}

int gpubuf_bundle_plan(const struct gpubuf_tensor_spec *tensors, size_t count,
                       const char *const *metadata, struct gpubuf_bundle **bundle)
{
    struct gb_error error;

    if (count > 0 && !tensors)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the tensors are NULL");
    struct gpubuf_bundle *made = bundle_new(NULL);
    if (!made)
        return GPUBUF_E_NO_MEMORY;
    int r = gb_manifest_plan(tensors, count, metadata, &made->head, &made->manifest, &error);
    return finish(made, r, NULL, &error, bundle);
}

/* ---- what it is ---- */

void gpubuf_bundle_layout(const struct gpubuf_bundle *bundle, struct gpubuf_layout_spec *layout)
{
    *layout = (struct gpubuf_layout_spec){
        .kind = GPUBUF_KIND_BUNDLE,
        .bytes = bundle->manifest.bytes,
        .manifest_bytes = bundle->manifest.manifest_bytes,
    };
}

const void *gpubuf_bundle_head(const struct gpubuf_bundle *bundle, uint64_t *bytes)
{
    *bytes = bundle->head.length;
    return bundle->head.data;
}

size_t gpubuf_bundle_count(const struct gpubuf_bundle *bundle)
{
    return bundle->manifest.tensor_count;
}

const struct gpubuf_tensor *gpubuf_bundle_at(const struct gpubuf_bundle *bundle, size_t i)
{
    return i < bundle->manifest.tensor_count ? &bundle->manifest.tensors[i] : NULL;
}

const struct gpubuf_tensor *gpubuf_bundle_find(const struct gpubuf_bundle *bundle, const char *name,
                                               size_t *i)
{
    const struct gb_manifest *manifest = &bundle->manifest;
    long found = name ? gb_manifest_find(manifest->tensor_names, manifest->tensor_count, name) : -1;

    if (found < 0)
        return NULL;
    if (i)
        *i = (size_t)found;
    return &manifest->tensors[found];
}

const char *gpubuf_bundle_metadata(const struct gpubuf_bundle *bundle, const char *key)
{
    const struct gb_manifest *manifest = &bundle->manifest;
    long found =
        key ? gb_manifest_find(manifest->metadata_names, manifest->metadata_count, key) : -1;

    return found < 0 ? NULL : manifest->metadata[found].value;
}

int gpubuf_bundle_metadata_at(const struct gpubuf_bundle *bundle, size_t i, const char **key,
                              const char **value)
{
    if (i >= bundle->manifest.metadata_count)
        return 1;
    *key = bundle->manifest.metadata[i].key;
    *value = bundle->manifest.metadata[i].value;
    return 0;
}

/* Finds array i of a bundle with an object. */
static int find_array(const struct gpubuf_bundle *bundle, size_t i,
                      const struct gpubuf_tensor **out, struct gb_dtype *dtype)
{
    const struct gpubuf_object *object = bundle->object;
    const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);

    if (!object)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the bundle is that of no object");
    int r = gb_object_check(object);
    if (r < 0)
        return r;
    const struct gpubuf_client *client = object->lease->client;
    if (!tensor)
        return gb_report_text(client, GPUBUF_E_NOT_FOUND, "no tensor %zu: %s has %zu", i,
                              object->lease->name, gpubuf_bundle_count(bundle));
    (void)gb_dtype_parse(tensor->dtype, strlen(tensor->dtype), dtype);
    if (gb_dtype_packed(dtype) &&
        (tensor->ndim == 0 || !gb_dtype_fills(dtype, tensor->shape[tensor->ndim - 1])))
        return gb_report_text(client, GPUBUF_E_UNSUPPORTED,
                              "tensor \"%.80s\": its elements of %s fill no whole bytes along the "
                              "last axis",
                              tensor->name, tensor->dtype);
    *out = tensor;
    return 0;
}

int gpubuf_bundle_array(const struct gpubuf_bundle *bundle, size_t i, struct gpubuf_object **array)
{
    const struct gpubuf_tensor *tensor;
    struct gb_dtype dtype;
    int r = find_array(bundle, i, &tensor, &dtype);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = bundle->object->lease;
    if (tensor->bytes > 0 && tensor->offset % gb_dtype_item(&dtype) != 0)
        return gb_report_text(lease->client, GPUBUF_E_UNSUPPORTED,
                              "tensor \"%.80s\" is not aligned: it begins at byte %" PRIu64
                              ", no multiple of the %" PRIu64 " bytes of a %s; take a copy of it, "
                              "in C by gpubuf_bundle_copy(), in Python by copy_to_host()",
                              tensor->name, tensor->offset, gb_dtype_item(&dtype), tensor->dtype);
    return gb_object_array(lease, &dtype, tensor->ndim, tensor->shape, tensor->offset, NULL, array);
}

int gpubuf_bundle_copy(const struct gpubuf_bundle *bundle, size_t i, struct gpubuf_object **array)
{
    const struct gpubuf_tensor *tensor;
    struct gb_dtype dtype;
    int r = find_array(bundle, i, &tensor, &dtype);

    if (r < 0)
        return r;
    struct gpubuf_object *object = bundle->object;
    struct gb_client_lease *lease = object->lease;
    if (strcmp(lease->device, "host") != 0 || atomic_load(&lease->state) == GB_LEASE_OPEN)
        return gb_report_text(lease->client, GPUBUF_E_UNSUPPORTED,
                              "tensor \"%.80s\" is copied only if its bundle is sealed and on the "
                              "host, and %s is not: copy the whole bundle, in C its bytes by "
                              "gpubuf_read()",
                              tensor->name, lease->name);
    void *copy = malloc((size_t)tensor->bytes + 1);
    if (!copy)
        return gb_report_memory(lease->client);
    r = gpubuf_read(object, GPUBUF_DATA, tensor->offset, copy, tensor->bytes, NULL);
    if (r < 0) {
        free(copy);
        return r;
    }
    return gb_object_array(lease, &dtype, tensor->ndim, tensor->shape, 0, copy, array);
}
