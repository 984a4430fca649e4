/*
 * The chunks of one object on their way: which are to come, which were asked for, and from which
 * source. Each source has a few in flight, and takes the next one when one has come: so a fast one
 * brings more.
 *
 * A transfer is ended by its owner when nothing is in flight (gb_transfer_idle), since chunks go to
 * the object's memory directly. On the loop's thread.
 */
#ifndef GB_TRANSFER_H
#define GB_TRANSFER_H

#include "client/peer/content.h"
#include "client/peer/remote.h"

enum { GB_SOURCES_MOST = 4 };

/* A machine that gives the object. */
struct gb_sender {
    struct gb_remote *remote;
    uint64_t lease, epoch;
    unsigned in_flight;
    bool failed;
};

struct gb_transfer {
    struct gb_content *content; /* the owner's */
    struct gb_sender senders[GB_SOURCES_MOST];
    unsigned count;
    unsigned char *states; /* of the chunks */
    uint64_t *sums;
    uint64_t chunks, left, next; /* no chunk before `next` is to be asked for */
    unsigned in_flight;
    bool stopped;
    struct gb_error error; /* of the sender that failed last */
    void (*moved)(struct gb_transfer *transfer);
};

/* `moved` is called when a chunk has come or a sender has failed. GPUBUF_E_NO_MEMORY. */
int gb_transfer_init(struct gb_transfer *transfer, struct gb_content *content,
                     void (*moved)(struct gb_transfer *transfer), struct gb_error *error);
void gb_transfer_end(struct gb_transfer *transfer); /* gives leases back; all zero is fine */

/* The lease is the transfer's. It is given back if there are as many senders as there may be. */
void gb_transfer_add(struct gb_transfer *transfer, struct gb_remote *remote, uint64_t lease);

/* Asks for what is not asked for. */
void gb_transfer_pump(struct gb_transfer *transfer);

/* One that has not failed, the machine `node` if it is among them; NULL: there is none left. */
struct gb_sender *gb_transfer_sender(struct gb_transfer *transfer, const char *node);

/* The sum of the whole, once no chunk is left. */
uint64_t gb_transfer_sum(const struct gb_transfer *transfer);

#endif
