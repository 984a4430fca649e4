/*
 * The HTTP server, on libmicrohttpd: metrics, the API of the page, the page, live events. Each
 * connection has a thread, so that an answer may wait for the daemon. There are at most
 * `--connections` of them at each address.
 *
 * libmicrohttpd limits how long a connection may be silent, but not how long a request may take to
 * arrive. So connections.h keeps the connections, and shuts down one whose request does not arrive
 * in time, or the oldest of these if there are too many.
 */
#ifndef GB_GATEWAY_HTTP_H
#define GB_GATEWAY_HTTP_H

#include "client/gateway/base/ask.h"
#include "client/gateway/base/options.h"
#include "client/gateway/events/feed.h"
#include "client/gateway/events/ring.h"

struct gb_gateway_http;

/* Binds the addresses of the options and serves. A failure is a sentence for the person who started
   the gateway. The options, the ring, the feed and the publisher (may be NULL) outlive the
   server. */
int gb_gateway_http_new(const struct gb_gateway_options *options, struct gb_gateway_ring *ring,
                        struct gb_gateway_feed *feed, struct gb_gateway_publish *publish,
                        struct gb_gateway_http **out, struct gb_error *error);
/* Reads the token's file anew; if the file cannot be used the token stays as it is. NULL is fine.
   One thread only. */
void gb_gateway_http_reload(struct gb_gateway_http *http);
/* Ends every connection. The ring must have been stopped. NULL is fine. */
void gb_gateway_http_free(struct gb_gateway_http *http);

#endif
