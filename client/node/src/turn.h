/*
 * The work before libuv's loop waits, while answers are expected. The requests that this turn has
 * begun are sent together. Then, if the loop has nothing else to do, it looks for answers for
 * 50 us: most come in less time than sleeping and waking takes. When looking is in vain (a long
 * wait, a busy machine) it pauses for more and more turns.
 */
#ifndef GB_NODE_TURN_H
#define GB_NODE_TURN_H

#include "client/node/src/addon.h"

void gb_turns_begin(struct gb_addon *addon);
void gb_turns_end(struct gb_addon *addon);

#endif
