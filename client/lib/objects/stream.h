/*
 * Streams in steps, for languages whose main thread must not wait: one thread looks for a frame,
 * and another one waits meanwhile. Calls of one stream follow one another, except that a reader may
 * give frames back while it waits.
 *
 * The shared library does not export these functions: they are for bindings that are linked with
 * these sources.
 */
#ifndef GB_LIB_STREAM_H
#define GB_LIB_STREAM_H

#include "gpubuf.h"

/* Makes a stream of an array that was opened, to write with a claim; takes its reference over in
   any case. Blocks. Errors are those of gpubuf_stream_create and gpubuf_stream_open. */
int gb_stream_begin(struct gpubuf_object *object, bool writes,
                    const struct gpubuf_stream_options *options, struct gpubuf_stream **stream);

/* As gpubuf_stream_read and gpubuf_stream_next; do not wait. GPUBUF_E_AGAIN: gb_stream_wait, then
   ask again. `waits`: for readers that want to be waited for; false once time is over, since a
   reader that lies may be late for ever. */
int gb_stream_read_now(struct gpubuf_stream *stream, struct gpubuf_frame *frame);
int gb_stream_next_now(struct gpubuf_stream *stream, bool waits, struct gpubuf_frame *frame);

/* Waits after GPUBUF_E_AGAIN, at most that long (-1: for ever), and asks the daemon where that is
   due. May return early. Returns within 100 ms once *stop is true. GPUBUF_E_TIMEOUT. */
int gb_stream_wait(struct gpubuf_stream *stream, int64_t timeout_ms, const _Atomic bool *stop);

#endif
