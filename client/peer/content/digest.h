/*
 * The sums that a word has (word.h). That of a content is taken in a thread of libuv's pool, chunk
 * after chunk: of an object that is there, or of one that is being received, as far as its
 * beginning has come.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_DIGEST_H
#define GB_PEER_DIGEST_H

#include <uv.h>

#include "client/peer/content/content.h"
#include "client/peer/directory/word.h"

struct gb_peer_digest;

/* Fills in `described`. `layout` is as `open` sends it (session.h); `label` NULL: it has none. */
bool gb_peer_word_describe(struct gb_peer_word *word, const char *layout, size_t length,
                           uint64_t mode, uint64_t bytes, const char *label);

/* `moved` is called, in a later turn, whenever the thread has done what there was. `content` stays
   until gb_peer_digest_end. NULL: memory is out. */
struct gb_peer_digest *gb_peer_digest_new(uv_loop_t *loop, const struct gb_peer_content *content,
                                          void (*moved)(void *user), void *user);
/* So many chunks, from the first on, are there. */
void gb_peer_digest_move(struct gb_peer_digest *digest, uint64_t chunks);
/* 1: the sum of the whole is in `sum`; 0: not yet; negative: it could not be taken. */
int gb_peer_digest_sum(const struct gb_peer_digest *digest, unsigned char sum[GB_PEER_WORD_BYTES],
                       struct gb_error *error);
/* Waits for the thread, which stops after the chunk that it has begun. NULL is fine. */
void gb_peer_digest_end(struct gb_peer_digest *digest);

#endif
