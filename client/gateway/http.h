/*
 * The HTTP server, on libmicrohttpd: metrics, the API of the page, the page, live events. A thread
 * for each connection, so that an answer may wait for the daemon; as many connections as
 * `--connections` says at each address.
 *
 * libmicrohttpd knows how long a connection may be silent, and not how long a request may take to
 * arrive. So connections are counted here (connections.h), and one whose request does not come to
 * its end is shut down; where there are too many, the oldest of those goes first.
 */
#ifndef GB_HTTP_H
#define GB_HTTP_H

#include "client/gateway/ask.h"
#include "client/gateway/feed.h"
#include "client/gateway/options.h"
#include "client/gateway/ring.h"

struct gb_http;

/* Binds where the options say and serves. A failure is a sentence for the person who started us.
   The options, the ring, the feed and the publisher (may be NULL) outlive it. */
int gb_http_new(const struct gb_options *options, struct gb_ring *ring, struct gb_feed *feed,
                struct gb_publish *publish, struct gb_http **out, struct gb_error *error);
/* Reads the token's file anew; one that cannot be used leaves the token as it is. NULL is fine. Of
   one thread. */
void gb_http_reload(struct gb_http *http);
/* Ends every connection. The ring has been stopped. NULL is fine. */
void gb_http_free(struct gb_http *http);

#endif
