/*
 * The methods of the protocol, as the session that serves and the queue of waits see them: a table, and
 * the way of a request through it. docs/PROTOCOL.md and proto/protocol.json describe the same rows; a
 * test holds them together. How a handler is written is in call.h.
 */
#ifndef GB_METHODS_H
#define GB_METHODS_H

#include <stdbool.h>
#include <stddef.h>

struct gb_method;
struct gb_session;
struct gb_wait;

/* The rows, in the order of docs/PROTOCOL.md. */
size_t gb_method_count(void);
const struct gb_method *gb_method_at(size_t i);
const char *gb_method_name(size_t i);

/* Answers one line; negative: the connection must be closed (descriptors out of step, no memory). */
int gb_methods_serve(struct gb_session *session, const char *line, size_t length);
/* Tries a request that waited once more. `timed_out`: for the last time. True if it was
   answered. */
bool gb_methods_retry(struct gb_wait *wait, bool timed_out);

#endif
