/*
 * One connection between two machines' peers: TLS over TCP, and frames in it (outbox.h). The head
 * of a frame is checked before a byte of memory is made for what follows: control is as long as a
 * line of the daemon's protocol at most, and data goes where the link's owner says that it awaits
 * it.
 *
 * A link ends by gb_link_close, or by itself: then `closed` is called once, and the link is no more
 * after that. No event is called before the function that made the link has returned, and none
 * after gb_link_close. On the loop's thread.
 */
#ifndef GB_LINK_H
#define GB_LINK_H

#include <uv.h>

#include "client/peer/outbox.h"
#include "client/peer/tls.h"

struct gb_link;

/* Where a chunk is put in: `bytes` are awaited. memory NULL: nobody awaits it, and the link
   ends. */
struct gb_room {
    void *memory;
    uint64_t bytes;
};

struct gb_link_events {
    /* The handshake is done, and this is the other side's node. False: it is not wanted. */
    bool (*open)(struct gb_link *link, const char *node, void *user);
    void (*control)(struct gb_link *link, uint64_t request, const char *text, size_t length,
                    void *user);
    struct gb_room (*room)(struct gb_link *link, uint64_t request, void *user); /* may be NULL */
    void (*data)(struct gb_link *link, uint64_t request, uint64_t sum, void *user); /* it is full */
    void (*closed)(struct gb_link *link, const struct gb_error *why, void *user);
};

/* Connects. `node`: whom to find there; any other ends it. NULL: out of memory. */
struct gb_link *gb_link_connect(uv_loop_t *loop, const struct gb_tls *tls, const char *node,
                                const char *host, uint16_t port,
                                const struct gb_link_events *events, void *user);

/* A connection that was accepted; the socket is the link's, also where this fails. */
struct gb_link *gb_link_accept(uv_loop_t *loop, const struct gb_tls *tls, int fd,
                               const struct gb_link_events *events, void *user);

/* NULL is fine. */
void gb_link_close(struct gb_link *link);

/* Queued in order. If memory is out the link ends, in a later turn of the loop. */
void gb_link_send(struct gb_link *link, uint64_t request, const char *text, size_t length);
void gb_link_send_chunk(struct gb_link *link, uint64_t request, const struct gb_source *source);
void gb_link_send_error(struct gb_link *link, uint64_t request, const struct gb_error *error);

/* Reads no more until it is told to go on: the other side's requests wait with it. */
void gb_link_pause(struct gb_link *link, bool paused);

/* For how many milliseconds nothing has come; and nothing of what is to be sent has gone, or the
   handshake has been going on (0: there is nothing to be sent). */
uint64_t gb_link_silent(const struct gb_link *link);
uint64_t gb_link_stuck(const struct gb_link *link);
bool gb_link_is_open(const struct gb_link *link); /* the handshake is done */

/* "node (host:port)" */
const char *gb_link_text(const struct gb_link *link);

#endif
