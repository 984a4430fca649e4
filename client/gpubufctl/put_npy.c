/* Publishing .npy files: of either byte order and either order of axes; the object is in C order.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "put.h"

static int no_memory(struct gb_put *put)
{
    gb_fail_memory(&put->error);
    return gb_put_failure(put);
}

/* Reads the header. 0, or a status. */
static int read_header(struct gb_put *put, struct gb_npy *npy)
{
    unsigned char first[12];
    uint64_t got, rest = 0;
    size_t length;

    if (gb_put_read(put, first, sizeof(first), &got) != 0 ||
        gb_npy_header_bytes(first, (size_t)got, &length, &put->error) != 0)
        return gb_put_failure(put);
    unsigned char *header = malloc(length > sizeof(first) ? length : sizeof(first));
    if (!header)
        return no_memory(put);
    memcpy(header, first, (size_t)got);
    int code = 0;
    if (length > got)
        code = gb_put_read(put, header + got, length - got, &rest);
    if (code == 0)
        code = gb_npy_read(header, (size_t)(got + rest), npy, &put->error);
    free(header);
    if (code == GPUBUF_E_UNSUPPORTED && put->input.fd != STDIN_FILENO)
        return GB_PUT_FOREIGN;
    return code == 0 ? GB_STATUS_OK : gb_put_failure(put);
}

/* A file's length tells early, before anything is allocated, that it was cut. */
static int check_length(struct gb_put *put, const struct gb_npy *npy)
{
    if (put->input.bytes == GB_FILE_UNKNOWN)
        return GB_STATUS_OK;
    uint64_t data = put->input.bytes - npy->header_bytes;
    if (data == npy->data_bytes)
        return GB_STATUS_OK;
    return gb_put_wrong_length(put, npy->data_bytes, data, data > npy->data_bytes);
}

static int check_end(struct gb_put *put, uint64_t expected)
{
    char byte;
    uint64_t got;

    if (gb_put_read(put, &byte, 1, &got) != 0)
        return gb_put_failure(put);
    return got == 0 ? GB_STATUS_OK : gb_put_wrong_length(put, expected, 0, true);
}

static int read_straight(struct gb_put *put, const struct gb_npy *npy, char *data)
{
    uint64_t got;

    if (gb_put_read(put, data, npy->data_bytes, &got) != 0)
        return gb_put_failure(put);
    if (got < npy->data_bytes)
        return gb_put_wrong_length(put, npy->data_bytes, got, false);
    if (npy->swap)
        gb_npy_swap(npy, data, npy->data_bytes);
    return GB_STATUS_OK;
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
static int read_fortran(struct gb_put *put, const struct gb_npy *npy, char *data)
{
    uint64_t per_chunk = ((uint64_t)1 << 20) / npy->item_bytes;

    if (per_chunk == 0)
        per_chunk = 1;
    char *chunk = malloc(per_chunk * npy->item_bytes);
    if (!chunk)
        return no_memory(put);

    struct scatter scatter;
    int status = GB_STATUS_OK;
    scatter_start(&scatter, npy);
    for (uint64_t done = 0; done < npy->count && status == GB_STATUS_OK;) {
        uint64_t count = npy->count - done < per_chunk ? npy->count - done : per_chunk;
        uint64_t bytes = count * npy->item_bytes, got;
        if (gb_put_read(put, chunk, bytes, &got) != 0) {
            status = gb_put_failure(put);
        } else if (got < bytes) {
            status = gb_put_wrong_length(put, npy->data_bytes, done * npy->item_bytes + got, false);
        } else {
            if (npy->swap)
                gb_npy_swap(npy, chunk, bytes);
            for (uint64_t i = 0; i < count; i++) {
                memcpy(data + scatter.at, chunk + i * npy->item_bytes, npy->item_bytes);
                scatter_next(&scatter, npy);
            }
            done += count;
        }
    }
    free(chunk);
    return status;
}

int gb_put_npy(struct gb_put *put)
{
    struct gb_npy npy;
    void *data = NULL;

    if (put->kind == GB_PUT_TABLE || put->kind == GB_PUT_BYTES)
        return gb_cli_usage(put->cli, "an .npy file becomes an array or a column, not %s",
                            put->kind == GB_PUT_TABLE ? "a table" : "bytes (but see --format raw)");
    int status = read_header(put, &npy);
    if (status == GB_STATUS_OK)
        status = check_length(put, &npy);
    if (status == GB_STATUS_OK)
        status = gb_put_create_array(put, &npy.dtype, npy.ndim, npy.shape, &data);
    if (status != GB_STATUS_OK)
        return status;
    if (npy.count > 0)
        status = npy.fortran && npy.ndim > 1 ? read_fortran(put, &npy, data)
                                             : read_straight(put, &npy, data);
    return status == GB_STATUS_OK ? check_end(put, npy.data_bytes) : status;
}
