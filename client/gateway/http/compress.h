/* Answers as gzip, in one piece or in slices. Each belongs to one thread at a time. */
#ifndef GB_GATEWAY_COMPRESS_H
#define GB_GATEWAY_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/wire/json.h"

struct gb_gateway_compress;

/* NULL if memory is out. */
struct gb_gateway_compress *gb_gateway_compress_new(void);
void gb_gateway_compress_free(struct gb_gateway_compress *compress);
/* Compresses the next bytes, the last ones if `last`, and adds what is ready to the writer, which
   may be nothing before the end. False: memory is out. */
bool gb_gateway_compress_add(struct gb_gateway_compress *compress, const char *data, size_t length,
                             bool last, struct gb_writer *writer);

#endif
