/* The greeting that a connection begins with. With the client's lock held, or before another thread
   knows the client. */
#ifndef GB_LIB_HELLO_H
#define GB_LIB_HELLO_H

#include "client/lib/wire/client.h"

/* Begins the params of hello: {"protocol":…, without the end. */
void gb_write_hello(struct gb_writer *writer, const char *name);
/* Reads the answer to hello, the reply at hand, and takes over what it says. *resumed (may be NULL)
   is the answer's member of that name. */
int gb_read_welcome(struct gpubuf_client *client, struct gb_json result, struct gb_json *resumed,
                    struct gb_error *error);

#endif
