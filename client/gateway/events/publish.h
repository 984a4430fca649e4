/*
 * Events for NNG's subscribers. Each URL has a PUB socket of its own, so that a flood at one URL
 * leaves the others room, and each URL has its own audience. NNG drops messages for a subscriber
 * that does not keep up; one that takes nothing for a minute is ended.
 *
 * The listener for ipc:// of NNG 1.5.2 stops for good when a peer hangs up in the middle of the
 * handshake (upstream #1518, mended in later versions). So a thread subscribes to each URL every
 * second. If a listener lets nobody in for two seconds, it is made anew.
 */
#ifndef GB_GATEWAY_PUBLISH_H
#define GB_GATEWAY_PUBLISH_H

#include "client/gateway/events/ring.h"
#include "proto/base/errors.h"

struct gb_gateway_publish;

/* Listens at each of the URLs, which NULL ends. A failure is a sentence for the person who started
   the gateway. */
int gb_gateway_publish_new(char *const *urls, unsigned subscribers, struct gb_gateway_publish **out,
                           struct gb_error *error);
void gb_gateway_publish_free(struct gb_gateway_publish *publish); /* NULL is fine */

/* One message: the topic, a newline, the JSON. `public_topic`: the topic for readers who may not
   know the name; NULL: the same topic. Never waits. One thread. */
void gb_gateway_publish(struct gb_gateway_publish *publish, const struct gb_gateway_told *told,
                        const char *topic, size_t topic_length, const char *public_topic);

struct gb_gateway_publish_counts {
    uint64_t subscribers; /* now */
    uint64_t sent, refused, renewed, ended;
};
/* Any thread. NULL: all 0. */
void gb_gateway_publish_count(struct gb_gateway_publish *publish,
                              struct gb_gateway_publish_counts *counts);

#endif
