/* Publishing .npy files: of either byte order and either order of axes; the object is in C order.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "put.h"

/* False: only the Python package can publish it. */
static bool read_header(struct gb_put *put, struct gb_npy *npy)
{
    unsigned char first[12], *header;
    uint64_t got = gb_put_read(put, first, sizeof(first));
    struct gb_error error;
    size_t length;

    if (gb_npy_header_bytes(first, (size_t)got, &length, &error) != 0)
        gb_cli_end_by(&error);
    header = gb_new(length > sizeof(first) ? length : sizeof(first), 1);
    memcpy(header, first, (size_t)got);
    if (length > got)
        got += gb_put_read(put, header + got, length - got);
    int code = gb_npy_read(header, (size_t)got, npy, &error);
    free(header);
    put->foreign = code == GPUBUF_E_UNSUPPORTED && put->input.fd != STDIN_FILENO;
    if (code < 0 && !put->foreign)
        gb_cli_end_by(&error);
    return !put->foreign;
}

static void read_straight(struct gb_put *put, const struct gb_npy *npy, char *data)
{
    gb_put_check_length(put, npy->data_bytes, gb_put_read(put, data, npy->data_bytes), false);
    if (npy->swap)
        gb_npy_swap(npy, data, npy->data_bytes);
}

/* Where the next element of a file in Fortran order goes in C order. */
struct scatter {
    uint64_t index[GB_NPY_NDIM];
    uint64_t stride[GB_NPY_NDIM]; /* in bytes */
    uint64_t at;
};

static void scatter_start(struct scatter *scatter, const struct gb_npy *npy)
{
    uint64_t stride = npy->item_bytes;

    *scatter = (struct scatter){0};
    for (unsigned i = npy->ndim; i-- > 0;) {
        scatter->stride[i] = stride;
        stride *= npy->shape[i];
    }
}

static void scatter_next(struct scatter *scatter, const struct gb_npy *npy)
{
    for (unsigned i = 0; i < npy->ndim; i++) {
        scatter->at += scatter->stride[i];
        if (++scatter->index[i] < npy->shape[i])
            return;
        scatter->at -= scatter->stride[i] * npy->shape[i];
        scatter->index[i] = 0;
    }
}

/* Reads a stretch of the file at a time and puts each element where C order has it. */
static void read_fortran(struct gb_put *put, const struct gb_npy *npy, char *data)
{
    uint64_t per_chunk = ((uint64_t)1 << 20) / npy->item_bytes;
    struct scatter scatter;

    if (per_chunk == 0)
        per_chunk = 1;
    char *chunk = gb_new(per_chunk, npy->item_bytes);
    scatter_start(&scatter, npy);
    for (uint64_t done = 0, count; done < npy->count; done += count) {
        count = npy->count - done < per_chunk ? npy->count - done : per_chunk;
        uint64_t bytes = count * npy->item_bytes, got = gb_put_read(put, chunk, bytes);
        if (got < bytes)
            gb_put_check_length(put, npy->data_bytes, done * npy->item_bytes + got, false);
        if (npy->swap)
            gb_npy_swap(npy, chunk, bytes);
        for (uint64_t i = 0; i < count; i++) {
            memcpy(data + scatter.at, chunk + i * npy->item_bytes, npy->item_bytes);
            scatter_next(&scatter, npy);
        }
    }
    free(chunk);
}

void gb_put_npy(struct gb_put *put)
{
    struct gb_npy npy;
    char byte;

    if (put->kind == GB_PUT_TABLE || put->kind == GB_PUT_BYTES)
        gb_cli_usage(put->cli, "an .npy file becomes an array or a column, not %s",
                     put->kind == GB_PUT_TABLE ? "a table" : "bytes (but see --format raw)");
    if (!read_header(put, &npy))
        return;
    /* A file's length tells early, before anything is allocated, that it was cut. */
    uint64_t length = put->input.bytes - npy.header_bytes;
    if (put->input.bytes != GB_FILE_UNKNOWN)
        gb_put_check_length(put, npy.data_bytes, length, length > npy.data_bytes);
    gb_put_create_array(put, &npy.dtype, npy.ndim, npy.shape);
    void *data = gb_put_memory(put, put->object, GPUBUF_DATA);
    if (npy.count > 0 && npy.fortran && npy.ndim > 1)
        read_fortran(put, &npy, data);
    else if (npy.count > 0)
        read_straight(put, &npy, data);
    gb_put_check_length(put, npy.data_bytes, npy.data_bytes, gb_put_read(put, &byte, 1) > 0);
}
