/*
 * Questions to the daemon. All serving threads share one connection, which is made when it is first
 * needed, and anew when it broke. Events come by another connection, so a long answer holds up no
 * event.
 *
 * There is one question at a time. After each there is a pause as long as the answer took, of at
 * most a millisecond. So however many requests there are, the daemon has half of its time for its
 * other sessions, and they wait for one question at most.
 */
#ifndef GB_GATEWAY_ASK_H
#define GB_GATEWAY_ASK_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpubuf.h"
#include "proto/base/errors.h"

struct gb_gateway_ask {
    const char *socket;           /* the caller's; NULL: the default places */
    struct gpubuf_client *client; /* of the thread that asks; NULL: not connected */
    bool busy;                    /* a thread asks; guarded by the lock */
    uint64_t answers;             /* that have come; guarded by the lock */
    _Atomic uint64_t session;     /* the connection's, as the daemon counts them */
    pthread_mutex_t lock;
    pthread_cond_t freed;
};

#define GB_INSTANCE_BYTES 64
#define GB_GATEWAY_NAME "gpubufd-gateway" /* as the daemon's list of sessions shows it */

void gb_gateway_ask_init(struct gb_gateway_ask *ask, const char *socket);
/* To be called when no thread asks any more. */
void gb_gateway_ask_end(struct gb_gateway_ask *ask);
/* Calls a method and waits for the answer, five seconds at most. *result is to be freed with
   gpubuf_free. Any thread. */
int gb_gateway_ask(struct gb_gateway_ask *ask, const char *method, const char *params,
                   char **result, struct gb_error *error);
/* The same; *instance says which run of the daemon has answered. */
int gb_gateway_ask_which(struct gb_gateway_ask *ask, const char *method, const char *params,
                         char **result, char instance[GB_INSTANCE_BYTES], struct gb_error *error);

#endif
