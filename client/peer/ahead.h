/*
 * Makes the pages of a copy in a thread of the pool, before chunks are written there. The loop's
 * thread would fault the pages in one by one, which takes as long as decrypting their content.
 *
 * The thread is a little ahead of the chunks that have come, so that a machine that promises much
 * and sends little gets little memory. It never reads or writes a byte. A page that it cannot make
 * is made when it is written.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_AHEAD_H
#define GB_PEER_AHEAD_H

#include <uv.h>

#include "client/peer/content.h"

struct gb_peer_ahead;

/* For an object being written, which is held as long as the thread needs it. `content` is the
   caller's, and must last until gb_peer_ahead_end. NULL: nothing is made ahead, since the object is
   small or memory is out. */
struct gb_peer_ahead *gb_peer_ahead_new(uv_loop_t *loop, struct gpubuf_object *object,
                                        const struct gb_peer_content *content);

/* Says that `came` chunks have come, about the first ones. NULL is fine. */
void gb_peer_ahead_move(struct gb_peer_ahead *ahead, uint64_t came);

/* The thread may still be running afterwards. NULL is fine. */
void gb_peer_ahead_end(struct gb_peer_ahead *ahead);

#endif
