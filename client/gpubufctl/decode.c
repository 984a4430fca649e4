#include "decode.h"

#include <errno.h>
#include <iconv.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"

enum { OUT_BYTES = 1 << 16, KEPT_BYTES = 64 };

struct gb_decoder {
    iconv_t iconv;
    const char *encoding;
    uint64_t at, line;     /* where it is in the file, from 0 and from 1 */
    char kept[KEPT_BYTES]; /* the beginning of a character whose end has not come */
    size_t kept_length;
    char out[OUT_BYTES];
};

int gb_decoder_new(struct gb_decoder **out, const char *encoding, struct gb_error *error)
{
    struct gb_decoder *decoder = gb_new(1, sizeof(*decoder));

    decoder->encoding = encoding;
    decoder->line = 1;
    decoder->iconv = iconv_open("UTF-8", encoding);
    if (decoder->iconv == (iconv_t)-1) {
        free(decoder);
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--encoding: there is no \"%.50s\" here; \"iconv -l\" lists what there is",
                       encoding);
    }
    *out = decoder;
    return 0;
}

void gb_decoder_free(struct gb_decoder *decoder)
{
    if (!decoder)
        return;
    (void)iconv_close(decoder->iconv);
    free(decoder);
}

static void count_lines(struct gb_decoder *decoder, size_t length)
{
    for (size_t i = 0; i < length; i++)
        decoder->line += decoder->out[i] == '\n';
}

/* Converts as much as makes whole characters; *used counts their bytes. */
static int convert(struct gb_decoder *decoder, const char *bytes, size_t length, size_t *used,
                   gb_text_taker take, void *taker, struct gb_error *error)
{
    char *in = (char *)(uintptr_t)bytes; /* iconv changes no byte of it */
    size_t left = length;

    for (;;) {
        char *out = decoder->out;
        size_t room = OUT_BYTES;
        size_t done = iconv(decoder->iconv, &in, &left, &out, &room);
        int cause = done == (size_t)-1 ? errno : 0;
        count_lines(decoder, OUT_BYTES - room);
        int r = take(taker, decoder->out, OUT_BYTES - room, false, error);
        if (r != 0)
            return r;
        *used = length - left;
        if (cause == EILSEQ)
            return gb_fail(error, GPUBUF_E_INVALID,
                           "line %" PRIu64 ", byte %" PRIu64 ": not %.50s text", decoder->line,
                           decoder->at + *used, decoder->encoding);
        if (cause != E2BIG)
            return 0;
    }
}

int gb_decoder_feed(struct gb_decoder *decoder, const char *bytes, size_t length, bool last,
                    gb_text_taker take, void *taker, struct gb_error *error)
{
    size_t used;

    /* A character that the last call's bytes began is completed byte by byte. */
    while (decoder->kept_length > 0 && length > 0) {
        decoder->kept[decoder->kept_length++] = *bytes++;
        length--;
        int r = convert(decoder, decoder->kept, decoder->kept_length, &used, take, taker, error);
        if (r != 0)
            return r;
        decoder->at += used;
        decoder->kept_length -= used;
        memmove(decoder->kept, decoder->kept + used, decoder->kept_length);
        if (decoder->kept_length == KEPT_BYTES)
            break;
    }
    int r = convert(decoder, bytes, length, &used, take, taker, error);
    if (r != 0)
        return r;
    decoder->at += used;
    if (length - used > KEPT_BYTES - 1 || (last && length - used + decoder->kept_length > 0))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "line %" PRIu64 ", byte %" PRIu64 ": a character of %.50s that does not end",
                       decoder->line, decoder->at, decoder->encoding);
    if (last) { /* some encodings hold back what the next character may change */
        char *out = decoder->out;
        size_t room = OUT_BYTES;
        (void)iconv(decoder->iconv, NULL, NULL, &out, &room);
        return take(taker, decoder->out, OUT_BYTES - room, true, error);
    }
    if (length > used) {
        memcpy(decoder->kept, bytes + used, length - used);
        decoder->kept_length = length - used;
    }
    return 0;
}
