/* Handing completions to JavaScript, whose callbacks may begin requests and close clients. In the
   environment's thread. */
#ifndef GB_NODE_DELIVER_H
#define GB_NODE_DELIVER_H

#include "client/node/src/addon.h"

#define GB_RECORDS 256      /* completions handed over in one call */
#define GB_RECORD_NUMBERS 4 /* id, status, value, kind */

/* Hands all completions over: from libuv's loop, or from inside a call of JavaScript's. */
void gb_deliver_from_loop(struct gb_addon *addon);
void gb_deliver_from_call(struct gb_addon *addon);

#endif
