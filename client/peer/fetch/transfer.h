/*
 * The chunks of one object on their way: which are to come, which were asked for, and the sender of
 * each. Each sender has a few in flight, and is asked for the next one when one has come. So a fast
 * sender brings more.
 *
 * The owner ends a transfer only when nothing is `in_flight`, since chunks go directly to the
 * object's memory. On the loop's thread.
 */
#ifndef GB_PEER_TRANSFER_H
#define GB_PEER_TRANSFER_H

#include "client/peer/content/content.h"
#include "client/peer/fetch/remote.h"

enum { GB_PEER_SOURCES_MOST = 4 };

/* A machine that sends chunks of the object. */
struct gb_peer_sender {
    struct gb_peer_remote *remote;
    uint64_t lease, epoch;
    unsigned in_flight;
    bool failed;
};

struct gb_peer_transfer {
    struct gb_peer_content *content; /* the owner's */
    struct gb_peer_sender senders[GB_PEER_SOURCES_MOST];
    unsigned count;
    unsigned char *states;       /* of the chunks */
    uint64_t chunks, left, next; /* no chunk before `next` is to be asked for */
    uint64_t came;               /* every chunk before it is here */
    unsigned in_flight;
    bool stopped;
    struct gb_error error; /* of the sender that failed last */
    void (*moved)(struct gb_peer_transfer *transfer);
};

/* `moved` is called when a chunk has come or a sender has failed. GPUBUF_E_NO_MEMORY. */
int gb_peer_transfer_init(struct gb_peer_transfer *transfer, struct gb_peer_content *content,
                          void (*moved)(struct gb_peer_transfer *transfer), struct gb_error *error);
void gb_peer_transfer_end(
    struct gb_peer_transfer *transfer); /* gives leases back; a zeroed one is fine */

/* Adds a sender, and takes the lease over. If there are too many senders the lease is given
   back. */
void gb_peer_transfer_add(struct gb_peer_transfer *transfer, struct gb_peer_remote *remote,
                          uint64_t lease);

/* Asks for more chunks, of all senders that may have more in flight. */
void gb_peer_transfer_pump(struct gb_peer_transfer *transfer);

/* How many chunks are here, from the first on. */
uint64_t gb_peer_transfer_came(struct gb_peer_transfer *transfer);
/* All chunks are to be asked for again. None is in flight. */
void gb_peer_transfer_restart(struct gb_peer_transfer *transfer);

/* False: all senders have failed. */
bool gb_peer_transfer_can_ask(const struct gb_peer_transfer *transfer);

#endif
