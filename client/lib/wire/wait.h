/*
 * Waiting for an answer. The thread that waits first leads: it polls the socket and handles what
 * comes for all threads. The others wait on `changed`.
 */
#ifndef GB_LIB_WAIT_H
#define GB_LIB_WAIT_H

#include "client/lib/wire/request.h"

/*
 * Waits until a `waited` request has ended, and takes it off the table. The lock is held before and
 * after, and let go meanwhile. Returns its status, reported if a failure. After a timeout
 * (`timeout_ms` -1: never) *request is NULL: it lives on until its reply comes.
 */
int gb_request_wait(struct gpubuf_client *client, struct gb_request **request, int64_t timeout_ms);

/* How long to wait for an answer when the daemon itself may take `wait_ms`. */
int64_t gb_answer_timeout(const struct gpubuf_client *client, int64_t wait_ms);

#endif
