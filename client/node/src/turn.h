/*
 * The work before libuv's loop waits, as long as answers are expected: the requests that this
 * turn has begun go out together, and if the loop has nothing else to do, the answers are looked
 * for during some microseconds. Most come within the time that falling asleep and being woken would
 * take. Where they do not (a long wait, a busy machine) it is tried more and more seldom.
 */
#ifndef GB_NODE_TURN_H
#define GB_NODE_TURN_H

#include "client/node/src/addon.h"

void gb_turns_begin(struct gb_addon *addon);
void gb_turns_end(struct gb_addon *addon);

#endif
