/* Output that waits for room in the socket: messages, notifications among them. With the client's
   lock held. */
#ifndef GB_LIB_OUTPUT_H
#define GB_LIB_OUTPUT_H

#include "client/lib/wire/client.h"

/* Sends what the socket takes. */
void gb_flush(struct gpubuf_client *client);

/* Begins a notification and returns the writer, which stands where its params go. */
struct gb_writer *gb_notice_begin(struct gpubuf_client *client, const char *method);
/* Ends it and queues it. False if memory is out. */
bool gb_notice_queue(struct gpubuf_client *client);

#endif
