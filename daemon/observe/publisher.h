/*
 * Events for subscribers of NNG: what they connect to speaks the wire protocol of NNG's PUB sockets
 * (SP over Unix sockets, TCP and WebSockets), from a thread and a loop of its own. Messages go out
 * together, as many as there are, in one write for each subscriber; who does not read loses
 * messages, and sees it by their numbers.
 *
 * It is no PUB socket of the library's, which sends each message by a system call of its own, and
 * whose listeners (as of 1.5.2) stop for good when somebody hangs up in the middle of the
 * handshake.
 */
#ifndef GB_PUBLISHER_H
#define GB_PUBLISHER_H

#include "daemon/observe/counts.h"
#include "daemon/observe/feed.h"
#include "proto/errors.h"

struct gb_publisher;

/*
 * Listens at the URLs and starts the thread. Over ipc:// everything is told, to the owner and the
 * group of the socket's file, which are the daemon's; over tcp:// and ws://, which have to be
 * loopback addresses, what everybody may know. A failure is a sentence for the person who started
 * us; what was made by then is in *publisher, to be ended.
 */
int gb_publisher_new(char *const *urls, unsigned count, struct gb_publisher **publisher,
                     struct gb_error *error);
/* Ends the thread and the sockets, and removes their files. NULL is fine. */
void gb_publisher_end(struct gb_publisher *publisher);

struct gb_outlet *gb_publisher_outlet(struct gb_publisher *publisher);

/* Any thread. */
void gb_publisher_counts(struct gb_publisher *publisher, struct gb_publisher_counts *counts);

#endif
