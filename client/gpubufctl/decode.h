/*
 * Converts text from another encoding to UTF-8 with iconv(3), piece by piece. Not thread-safe.
 */
#ifndef GB_DECODE_H
#define GB_DECODE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/errors.h"

/* Takes a file's next bytes; `last`: there are no more. 0 or a code. */
typedef int (*gb_text_taker)(void *taker, const char *bytes, size_t length, bool last,
                             struct gb_error *error);

struct gb_decoder;

/* GPUBUF_E_INVALID: there is no such encoding. */
int gb_decoder_new(struct gb_decoder **decoder, const char *encoding, struct gb_error *error);
void gb_decoder_free(struct gb_decoder *decoder);

/* Converts the bytes and hands the UTF-8 text to `take`. GPUBUF_E_INVALID with the place of a byte
   that the encoding does not have; else what `take` returns. */
int gb_decoder_feed(struct gb_decoder *decoder, const char *bytes, size_t length, bool last,
                    gb_text_taker take, void *taker, struct gb_error *error);

#endif
