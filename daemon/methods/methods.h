/*
 * The methods of the protocol: a table, and the way of a request through it. docs/PROTOCOL.md and
 * proto/protocol.json describe the same rows; a test holds them together. How a handler is written
 * is in call.h.
 */
#ifndef GB_METHODS_H
#define GB_METHODS_H

#include "daemon/serve/service.h"

struct gb_method;

/* The methods, for the server. */
extern const struct gb_service gb_methods;

/* The rows, in the order of docs/PROTOCOL-METHODS.md. */
size_t gb_method_count(void);
const struct gb_method *gb_method_at(size_t i);

#endif
