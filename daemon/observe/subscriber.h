/*
 * Those who subscribe to events by NNG: the handshake of each transport, and what each has still to
 * be sent. Messages are framed once for all subscribers of a kind. All of it belongs to the
 * publisher's thread, but for the counts.
 */
#ifndef GB_SUBSCRIBER_H
#define GB_SUBSCRIBER_H

#include <uv.h>

#include "daemon/observe/feed.h"
#include "daemon/observe/websocket.h"

/* How NNG's transports send a message: after a 1 and its length, after its length, as a frame. */
enum gb_framing { GB_FRAMING_IPC, GB_FRAMING_TCP, GB_FRAMING_WS, GB_FRAMINGS };

struct gb_subscribers {
    uv_loop_t *loop;
    struct gb_outlet *outlet; /* whose takers they are, once they have said what they are */
    struct gb_link list;
    unsigned count;
    atomic_uint_fast64_t sent, dropped;
};

void gb_subscribers_init(struct gb_subscribers *subscribers, uv_loop_t *loop,
                         struct gb_outlet *outlet);
/* Begins to close all of them; the loop is to run until it is idle. */
void gb_subscribers_end(struct gb_subscribers *subscribers);
/* Takes the connected socket over. */
void gb_subscriber_new(struct gb_subscribers *subscribers, int fd, enum gb_framing framing,
                       enum gb_audience audience);
/* Deals a batch out. */
void gb_subscribers_tell(struct gb_subscribers *subscribers, const struct gb_batch *batch);
/* Ends those who have not said in time what they are, or who have read nothing for long. */
void gb_subscribers_check(struct gb_subscribers *subscribers, uint64_t now_ms);

#endif
