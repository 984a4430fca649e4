/*
 * All that looks on from outside, as far as the configuration asks for it: the feed of events and
 * its outlets (HTTP, NNG's subscribers), the trace, and their timers. The server tells it what
 * happens through serve/observer.h; only main.c names it. The loop's thread.
 */
#ifndef GB_OBSERVE_H
#define GB_OBSERVE_H

#include <uv.h>

#include "daemon/observe/events.h"
#include "daemon/serve/observer.h"

struct gb_http;
struct gb_publisher;
struct gb_server;
struct gb_trace;

/* All zeroes is one that has not begun. */
struct gb_observe {
    struct gb_observer observer;
    struct gb_server *server;
    struct gb_events events;
    struct gb_http *http;           /* NULL: not served */
    struct gb_publisher *publisher; /* NULL: nothing is published */
    struct gb_trace *trace;         /* NULL: nobody asks */
    uv_timer_t gather;              /* of events, until they are handed over */
    uv_timer_t tick;                /* of figures for those who listen */
};

/* When the server listens and before it runs. A failure is a sentence for the person who started
   us; to be stopped and ended then too. */
int gb_observe_begin(struct gb_observe *observe, struct gb_server *server, struct gb_error *error);
/* Before the server ends: nobody looks into it from now on. */
void gb_observe_stop(struct gb_observe *observe);
/* After the server has ended, and with it the loop's handles. */
void gb_observe_end(struct gb_observe *observe);

#endif
