/*
 * Questions to the daemon: one connection for all threads that serve, made when it is first needed,
 * and anew where it broke. It is not the one that events come by, so that a long answer holds up no
 * event.
 *
 * One question at a time, and after each as long a pause as it took, a millisecond at most: however
 * many ask us, the daemon has half of its time for its other sessions, and these are held up by one
 * question.
 */
#ifndef GB_ASK_H
#define GB_ASK_H

#include <pthread.h>

#include "gpubuf.h"
#include "proto/errors.h"

struct gb_ask {
    const char *socket;           /* the caller's; NULL: the default places */
    struct gpubuf_client *client; /* of whoever asks; NULL: not connected */
    bool busy;                    /* somebody asks; guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
};

#define GB_GATEWAY_NAME "gpubufd-gateway" /* as the daemon's list of sessions shows it */

void gb_ask_init(struct gb_ask *ask, const char *socket);
/* Nobody asks any more. */
void gb_ask_end(struct gb_ask *ask);
/* Calls a method and waits for the answer, five seconds at most. *result is to be freed with
   gpubuf_free. Any thread. */
int gb_ask(struct gb_ask *ask, const char *method, const char *params, char **result,
           struct gb_error *error);

#endif
