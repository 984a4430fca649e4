/* Publishing a file's bytes as they are: as bytes, or as an array or column of a given dtype. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/data/put.h"
#include "proto/base/limits.h"

/* Reads a pipe to its end. */
static char *read_all(struct gb_put *put, uint64_t *length)
{
    uint64_t capacity = 1 << 20;
    char *bytes = gb_grow(NULL, capacity, 1);

    *length = 0;
    while ((*length += gb_put_read(put, bytes + *length, capacity - *length)) == capacity) {
        capacity += capacity / 2;
        bytes = gb_grow(bytes, capacity, 1);
    }
    return bytes;
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

/* Returns how many bytes the data must have, and sets the shape if none was given. */
static uint64_t settle_shape(struct gb_put *put, uint64_t length)
{
    uint64_t item = gb_dtype_item(&put->dtype), bits = gb_dtype_bits(&put->dtype), expected;

    if (put->has_shape) {
        if (!shape_bytes(put, item, &expected))
            gb_cli_fail(GB_STATUS_FAILED, "the shape is too large: over 2^52 - 1 bytes in all");
        return expected;
    }
    if (length % item != 0)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%s: its %" PRIu64 " bytes are no whole number of elements of %" PRIu64
                    " bytes",
                    put->input.name, length, item);
    put->ndim = 1;
    put->shape[0] = length / item;
    if (gb_dtype_packed(&put->dtype))
        put->shape[0] = length / bits * 8 + length % bits * 8 / bits;
    return length;
}

static void create(struct gb_put *put, uint64_t bytes)
{
    if (put->has_dtype)
        gb_put_create_array(put, &put->dtype, put->ndim, put->shape);
    else
        gb_put_create(put, &(struct gpubuf_layout_spec){.kind = GPUBUF_KIND_BYTES, .bytes = bytes});
}

/* The size is known beforehand, so that the file is read straight into the object. */
static void put_sized(struct gb_put *put, uint64_t bytes)
{
    uint64_t got = bytes;
    char byte;

    create(put, bytes);
    if (put->input.bytes != GB_FILE_UNKNOWN)
        gb_put_stream(put, 0, bytes);
    else if (bytes > 0)
        got = gb_put_read(put, gb_put_memory(put, put->object, GPUBUF_DATA), bytes);
    gb_put_check_length(put, bytes, got, gb_put_read(put, &byte, 1) > 0);
}

static void put_unsized(struct gb_put *put)
{
    uint64_t length;
    char *bytes = read_all(put, &length);

    if (put->has_dtype)
        (void)settle_shape(put, length);
    create(put, length);
    if (length > 0)
        memcpy(gb_put_memory(put, put->object, GPUBUF_DATA), bytes, length);
    free(bytes);
}

void gb_put_raw(struct gb_put *put)
{
    uint64_t length = put->input.bytes, expected = length;

    if (put->kind == GB_PUT_TABLE)
        gb_cli_usage(put->cli, "only a CSV file becomes a table");
    if (!put->has_dtype && (put->kind == GB_PUT_ARRAY || put->kind == GB_PUT_COLUMN))
        gb_cli_usage(put->cli, "raw bytes become %s only with --dtype",
                     put->kind == GB_PUT_ARRAY ? "an array" : "a column");
    if (put->has_dtype && put->kind == GB_PUT_BYTES)
        gb_cli_usage(put->cli, "--kind bytes goes without --dtype");
    if (length == GB_FILE_UNKNOWN && !put->has_shape) {
        put_unsized(put);
        return;
    }
    if (put->has_dtype)
        expected = settle_shape(put, length);
    if (length != GB_FILE_UNKNOWN)
        gb_put_check_length(put, expected, length, length > expected);
    put_sized(put, expected);
}
