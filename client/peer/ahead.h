/*
 * Pages of a copy that is coming, made by a thread of the pool before chunks are written there. The
 * loop's thread would fault them in one by one, which takes as long as to decrypt what they get.
 *
 * The thread is a little ahead of what has come, so that a machine that promises much and sends
 * little has little memory made for it. It only looks at addresses, never at a byte. The writing
 * does whatever it cannot do.
 *
 * On the loop's thread.
 */
#ifndef GB_AHEAD_H
#define GB_AHEAD_H

#include <uv.h>

#include "client/peer/content.h"

struct gb_ahead;

/* Of an object being written, which is held for as long as the thread needs it. `content` is the
   caller's, until gb_ahead_end. NULL: nothing is done ahead, as it is small, or memory is out. */
struct gb_ahead *gb_ahead_new(uv_loop_t *loop, struct gpubuf_object *object,
                              const struct gb_content *content);

/* Tells it that `came` chunks have come: about the first ones. NULL is fine. */
void gb_ahead_move(struct gb_ahead *ahead, uint64_t came);

/* The thread may be at it still. NULL is fine. */
void gb_ahead_end(struct gb_ahead *ahead);

#endif
