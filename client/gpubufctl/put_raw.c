/* Publishing a file's bytes as they are: as bytes, or as an array or column of a given dtype. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "put.h"

/* Reads a pipe to its end. 0, or a status. */
static int read_all(struct gb_put *put, char **data, uint64_t *length)
{
    uint64_t capacity = 1 << 20, used = 0, got;
    char *bytes = malloc(capacity);

    for (;;) {
        if (!bytes) {
            gb_fail_memory(&put->error);
            return gb_put_failure(put);
        }
        if (gb_put_read(put, bytes + used, capacity - used, &got) != 0) {
            free(bytes);
            return gb_put_failure(put);
        }
        used += got;
        if (used < capacity)
            break;
        capacity += capacity / 2;
        char *grown = realloc(bytes, capacity);
        if (!grown)
            free(bytes);
        bytes = grown;
    }
    *data = bytes;
    *length = used;
    return GB_STATUS_OK;
}

/* Computes how many bytes a shape of such items takes; false if too many. */
static bool shape_bytes(const struct gb_put *put, uint64_t item, uint64_t *bytes)
{
    uint64_t total = item;

    for (unsigned i = 0; i < put->ndim; i++)
        if (put->shape[i] == 0)
            total = 0;
    for (unsigned i = 0; i < put->ndim && total > 0; i++)
        if (__builtin_mul_overflow(
                total, gb_dtype_items(&put->dtype, put->shape[i], i + 1 == put->ndim), &total) ||
            total > (uint64_t)GB_LIMIT(integer))
            return false;
    *bytes = total;
    return true;
}

/* Finds how many bytes the data must have, and the shape if none was given. 0, or a status. */
static int settle_shape(struct gb_put *put, uint64_t length, uint64_t *expected)
{
    uint64_t item = gb_dtype_item(&put->dtype), bits = gb_dtype_bits(&put->dtype);

    if (put->has_shape) {
        if (!shape_bytes(put, item, expected))
            return gb_cli_fail(GB_STATUS_FAILED,
                               "the shape is too large: over 2^52 - 1 bytes in all");
        return GB_STATUS_OK;
    }
    if (length % item != 0)
        return gb_cli_fail(GB_STATUS_FAILED,
                           "%s: its %" PRIu64 " bytes are no whole number of elements of %" PRIu64
                           " bytes",
                           put->input.name, length, item);
    put->ndim = 1;
    put->shape[0] = length / item;
    if (gb_dtype_packed(&put->dtype))
        put->shape[0] = length / bits * 8 + length % bits * 8 / bits;
    *expected = length;
    return GB_STATUS_OK;
}

/* Creates the object, and gives its memory, unless `data` is NULL. */
static int create(struct gb_put *put, uint64_t bytes, void **data)
{
    if (put->has_dtype)
        return gb_put_create_array(put, &put->dtype, put->ndim, put->shape, data);

    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    int status = gb_put_create(put, &layout);
    return status == GB_STATUS_OK && data ? gb_put_memory(put, put->object, GPUBUF_DATA, data)
                                          : status;
}

/* The size is known beforehand, so that the file is read straight into the object. */
static int put_sized(struct gb_put *put, uint64_t bytes)
{
    bool pipe = put->input.bytes == GB_FILE_UNKNOWN;
    uint64_t got = bytes, more = 0;
    void *data = NULL;
    char byte;

    int status = create(put, bytes, pipe ? &data : NULL);
    if (status == GB_STATUS_OK && !pipe)
        status = gb_put_stream(put, 0, bytes);
    if (status != GB_STATUS_OK)
        return status;
    if ((pipe && bytes > 0 && gb_put_read(put, data, bytes, &got) != 0) ||
        gb_put_read(put, &byte, 1, &more) != 0)
        return gb_put_failure(put);
    if (got < bytes || more > 0)
        return gb_put_wrong_length(put, bytes, got, more > 0);
    return GB_STATUS_OK;
}

static int put_unsized(struct gb_put *put)
{
    char *bytes = NULL;
    uint64_t length = 0, expected;
    void *data = NULL;

    int status = read_all(put, &bytes, &length);
    if (status != GB_STATUS_OK)
        return status;
    if (put->has_dtype)
        status = settle_shape(put, length, &expected);
    if (status == GB_STATUS_OK)
        status = create(put, length, &data);
    if (status == GB_STATUS_OK && length > 0)
        memcpy(data, bytes, length);
    free(bytes);
    return status;
}

int gb_put_raw(struct gb_put *put)
{
    uint64_t expected = put->input.bytes;

    if (put->kind == GB_PUT_TABLE)
        return gb_cli_usage(put->cli, "only a CSV file becomes a table");
    if (!put->has_dtype && (put->kind == GB_PUT_ARRAY || put->kind == GB_PUT_COLUMN))
        return gb_cli_usage(put->cli, "raw bytes become %s only with --dtype",
                            put->kind == GB_PUT_ARRAY ? "an array" : "a column");
    if (put->has_dtype && put->kind == GB_PUT_BYTES)
        return gb_cli_usage(put->cli, "--kind bytes goes without --dtype");
    if (put->input.bytes == GB_FILE_UNKNOWN && !put->has_shape)
        return put_unsized(put);

    int status = GB_STATUS_OK;
    if (put->has_dtype)
        status = settle_shape(put, put->input.bytes, &expected);
    if (status == GB_STATUS_OK && put->input.bytes != GB_FILE_UNKNOWN &&
        put->input.bytes != expected)
        return gb_put_wrong_length(put, expected, put->input.bytes, put->input.bytes > expected);
    return status == GB_STATUS_OK ? put_sized(put, expected) : status;
}
