/*
 * This machine's word on its own objects (word.h) that other machines have asked for. A word is
 * taken once for each object, off the loop's thread and one at a time, and is then told to the
 * directory too. So copies can be checked while this machine is busy, and after it has died.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_WORDS_H
#define GB_PEER_WORDS_H

#include <uv.h>

#include "client/peer/content/described.h"
#include "client/peer/content/lease.h"

struct gb_peer_words;

/* The directory outlives them. NULL: memory is out. */
struct gb_peer_words *gb_peer_words_new(uv_loop_t *loop, struct gb_peer_directory *directory);

/* Takes the word on an object, if that was not done yet, and uses the caller's lease for it.
   `callback` (NULL: nobody wants to know) is called once, maybe before this returns. */
typedef void (*gb_peer_word_cb)(void *user, const struct gb_peer_word *word,
                                const struct gb_error *error);
void gb_peer_words_want(struct gb_peer_words *words, const struct gb_peer_described *described,
                        struct gb_peer_lease *lease, gb_peer_word_cb callback, void *user);

/* The name means another version now, or nothing (0). */
void gb_peer_words_changed(struct gb_peer_words *words, const char *name, uint64_t version);
/* All versions are of a former daemon. */
void gb_peer_words_forget(struct gb_peer_words *words);
/* NULL is fine. */
void gb_peer_words_free(struct gb_peer_words *words);

#endif
