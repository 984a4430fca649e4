/*
 * Events by NNG, to whoever subscribes: a PUB socket for each audience, and a thread that sends what
 * comes through an outlet (feed.h). NNG's own threads see finished messages and nothing else. NNG
 * drops what a subscriber does not take in time; the numbers of the events show it.
 */
#ifndef GB_PUBLISHER_H
#define GB_PUBLISHER_H

#include "feed.h"
#include "proto/errors.h"

struct gb_publisher;

/*
 * Listens at the URLs and starts the thread. Over ipc:// everything is told to the owner and the group
 * of the socket's file, the daemon's; over tcp:// and ws://, which have to be loopback addresses, to
 * everybody what everybody may know. A failure is a sentence for the person who started us; what was
 * made by then is still the caller's to end.
 */
int gb_publisher_new(char *const *urls, unsigned count, struct gb_publisher **publisher,
                     struct gb_error *error);
/* Ends the thread, the sockets and NNG, and removes the sockets' files. NULL is fine. */
void gb_publisher_end(struct gb_publisher *publisher);

struct gb_outlet *gb_publisher_outlet(struct gb_publisher *publisher);

struct gb_publisher_counts {
    uint64_t subscribers;   /* now */
    uint64_t sent, dropped; /* messages, for all subscribers together; before NNG drops its own */
};
void gb_publisher_counts(struct gb_publisher *publisher, struct gb_publisher_counts *counts);

#endif
