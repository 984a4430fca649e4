/* The beginning and the end of a client. */
#ifndef GB_LIB_CONNECT_H
#define GB_LIB_CONNECT_H

#include "client/lib/wire/client.h"

/* A client around a connected, non-blocking socket that has not been greeted. NULL: out of memory;
   the socket stays the caller's. */
struct gpubuf_client *gb_connect_over(int fd);

#endif
