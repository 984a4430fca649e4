/*
 * Objects of this machine's daemon that other machines may have (described.h) are published in the
 * directory, and withdrawn when it goes. A publisher watches the daemon. It publishes an object
 * once, and again under a new epoch, when the directory says that it forgot. A name that another
 * machine has is left to it: the object stays this machine's own, until a newer version is sealed,
 * which is offered anew. While the directory is not there it tries again every second.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_PUBLISH_H
#define GB_PEER_PUBLISH_H

#include <uv.h>

#include "client/peer/directory.h"

struct gb_publisher;

struct gb_publish_options {
    uv_loop_t *loop;
    struct gpubuf_client *client;
    struct gb_directory *directory;
    /* One line for the log. May be NULL. */
    void (*say)(void *user, const char *sentence);
    void *user;
};

/* All that the options point to outlives it, but for the directory, which is closed before. It
   waits for the daemon's answer to `watch`. */
int gb_publisher_new(const struct gb_publish_options *options, struct gb_publisher **out,
                     struct gb_error *error);
/* Withdraws nothing: names go with the lease. Its handle is closed some turns later. */
void gb_publisher_free(struct gb_publisher *publisher);

/* To be called when the directory tells its state. */
void gb_publisher_state(struct gb_publisher *publisher, bool is_there, bool forgot);

/* To be called before the first event of a daemon that is another than before: its versions say
   nothing of the former one's. */
void gb_publisher_anew(struct gb_publisher *publisher);

struct gb_publish_figures {
    uint64_t shared;    /* objects that others may have */
    uint64_t published; /* of them, in the directory */
    uint64_t refused;   /* of them, because another machine has the name */
    uint64_t failures;  /* of requests to publish, since the start */
};
struct gb_publish_figures gb_publisher_figures(const struct gb_publisher *publisher);

#endif
