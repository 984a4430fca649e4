#include "client/gateway/http/compress.h"

#include <stdlib.h>

#define ZLIB_CONST
#include <zlib.h>

#define LEVEL 1        /* an answer is read once: time counts more than bytes */
#define GZIP_BITS 31   /* a window of 32 KiB, in gzip's format */
#define MEMORY_LEVEL 8 /* zlib's default */

struct gb_gateway_compress {
    z_stream stream;
};

struct gb_gateway_compress *gb_gateway_compress_new(void)
{
    struct gb_gateway_compress *compress = calloc(1, sizeof(*compress));

    if (compress && deflateInit2(&compress->stream, LEVEL, Z_DEFLATED, GZIP_BITS, MEMORY_LEVEL,
                                 Z_DEFAULT_STRATEGY) == Z_OK)
        return compress;
    free(compress);
    return NULL;
}

void gb_gateway_compress_free(struct gb_gateway_compress *compress)
{
    if (compress)
        (void)deflateEnd(&compress->stream);
    free(compress);
}

bool gb_gateway_compress_add(struct gb_gateway_compress *compress, const char *data, size_t length,
                             bool last, struct gb_writer *writer)
{
    z_stream *stream = &compress->stream;
    unsigned char out[16384];
    int r;

    stream->next_in = (const unsigned char *)data;
    stream->avail_in = (uInt)length; /* of an answer, far below 4 GiB */
    do {
        stream->next_out = out;
        stream->avail_out = sizeof(out);
        r = deflate(stream, last ? Z_FINISH : Z_NO_FLUSH);
        if (r == Z_STREAM_ERROR)
            return false;
        gb_write(writer, (const char *)out, sizeof(out) - stream->avail_out);
    } while (stream->avail_out == 0 || (last && r != Z_STREAM_END));
    return !writer->failed;
}
