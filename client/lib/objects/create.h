/* Creating what is like another object. Without the lock. */
#ifndef GB_LIB_CREATE_H
#define GB_LIB_CREATE_H

#include "client/lib/wire/client.h"
#include "proto/layout/layout.h"

/* As gpubuf_create, of a layout as an object has it, but for the places of its buffers. */
int gb_create_like(struct gpubuf_client *client, const char *name, const struct gb_layout *like,
                   const struct gpubuf_create_options *options, struct gpubuf_object **object);

#endif
