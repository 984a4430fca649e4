/*
 * Fetches names that are wanted here and are on other machines: each once, however many programs
 * wait. A fetch finds the places (directory.h), opens the object at a few of them, makes an object
 * of the same layout in this machine's daemon, and fills it with chunks from all of them, several
 * in flight (transfer.h). The object is sealed when the sum of the whole content is the one that a
 * source tells. Until then nobody sees it. A source that fails is given up. When there is no
 * source, the directory is asked again; at last the name is declined, with a sentence that names
 * the machine.
 *
 * Nothing that another machine tells is trusted: its layout is checked as the daemon checks one,
 * and the size compared with the one told, before memory is asked for.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_FETCH_H
#define GB_PEER_FETCH_H

#include "client/peer/fetch/fetching.h"

/* NULL: out of memory. */
struct gb_peer_fetches *gb_peer_fetches_new(const struct gb_peer_parts *parts);
/* Before what they wait for is closed: all end then, without a word, and no other is begun.
   Programs wait on, for the provider that comes next. */
void gb_peer_fetches_stop(struct gb_peer_fetches *fetches);
/* After gb_peer_remotes_close and gpubuf_disconnect, which end what the fetches wait for. Its
   handle is closed some turns later. */
void gb_peer_fetches_free(struct gb_peer_fetches *fetches);

/* Fetches a name, for a user who waits for it: users take turns. `request` is for `decline`. */
void gb_peer_fetches_want(struct gb_peer_fetches *fetches, const char *name, uint64_t request,
                          uint64_t uid);
/* The name (NULL: every name) that was absent may be there now. */
void gb_peer_fetches_again(struct gb_peer_fetches *fetches, const char *name);
/* Nobody waits any more for the name of that request; 0: of any earlier request. */
void gb_peer_fetches_leave(struct gb_peer_fetches *fetches, uint64_t request);
/* The name means that revision now: deletes a copy of another revision, also one that is being
   made. 0: the name means nothing now; a copy is deleted only if the machine that published it is
   there. */
void gb_peer_fetches_changed(struct gb_peer_fetches *fetches, const char *name, uint64_t revision);

#endif
