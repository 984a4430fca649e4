/*
 * The HTTP server: metrics, the API of the page, and the page. It has a thread and a loop of its
 * own, which own its connections; a slow or hostile client costs the daemon's loop nothing. What
 * only that loop knows is asked for by queries (report.h), one slice at a time, each when the slice
 * before has been sent; events come through an outlet (feed.h).
 *
 * It is small on purpose and does all by itself that has to hold against strangers: limits and
 * deadlines for each connection, a strict reading of requests, Host, Origin, token.
 */
#ifndef GB_HTTP_H
#define GB_HTTP_H

#include "daemon/observe/counts.h"
#include "daemon/observe/feed.h"
#include "proto/errors.h"

struct gb_http;
struct gb_publisher;
struct gb_server;

/* Binds where the configuration says and starts the thread. A failure is a sentence for the person
   who started us. The metrics tell of `publisher`, too (NULL: there is none), which is the
   caller's. The loop's thread, as all below. */
int gb_http_new(struct gb_server *server, struct gb_publisher *publisher, struct gb_http **http,
                struct gb_error *error);
/* Ends the thread and every connection; no query is under way afterwards. NULL is fine. */
void gb_http_stop(struct gb_http *http);
/* After the loop has closed its handles. NULL is fine. */
void gb_http_free(struct gb_http *http);

/* Where events are to be put. */
struct gb_outlet *gb_http_outlet(struct gb_http *http);

/* Any thread. */
void gb_http_counts(struct gb_http *http, struct gb_http_counts *counts);

#endif
