/*
 * Events for NNG's subscribers: a PUB socket for each URL, so that one that is flooded leaves the
 * others room, and each is told what those may know who reach it. NNG drops for whoever does not
 * keep up, and one that takes nothing at all for a minute is ended.
 *
 * The listener for ipc:// of NNG 1.5.2 stops for good when a peer hangs up in the middle of the
 * handshake (upstream #1518, mended in later versions). So a thread subscribes to each URL every
 * second; where nobody is let in for two, the listener is made anew.
 */
#ifndef GB_PUBLISH_H
#define GB_PUBLISH_H

#include "client/gateway/ring.h"
#include "proto/errors.h"

struct gb_publish;

/* Listens at each of the URLs, which NULL ends. A failure is a sentence for the person who started
   us. */
int gb_publish_new(char *const *urls, unsigned subscribers, struct gb_publish **out,
                   struct gb_error *error);
void gb_publish_free(struct gb_publish *publish); /* NULL is fine */

/* One message: the topic, a newline, the JSON. `public_topic`: in its place for those who may not
   know the name; NULL: the same. Never waits. One thread. */
void gb_publish(struct gb_publish *publish, const struct gb_told *told, const char *topic,
                size_t topic_length, const char *public_topic);

struct gb_publish_counts {
    uint64_t subscribers; /* now */
    uint64_t sent, refused, renewed, ended;
};
/* Any thread. NULL: all 0. */
void gb_publish_count(struct gb_publish *publish, struct gb_publish_counts *counts);

#endif
