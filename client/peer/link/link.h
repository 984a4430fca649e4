/*
 * One connection between two machines' peers: TLS over TCP, and frames in it (outbox.h). The head
 * of a frame is checked before memory is allocated for the rest. A control frame is at most as long
 * as a line of the daemon's protocol. Data goes to memory that the link's owner names.
 *
 * A link ends by gb_peer_link_close, or by itself: then `closed` is called once, and the link must
 * not be used afterwards. No event is called before the function that made the link has returned,
 * and none after gb_peer_link_close. On the loop's thread.
 *
 * The bytes of a large chunk are copied, summed, enciphered and sent in a thread of libuv's pool,
 * and likewise received: so the links of a machine use several processors. The loop leaves such a
 * link alone until the thread comes back, which it does as soon as the socket is full or empty.
 */
#ifndef GB_PEER_LINK_H
#define GB_PEER_LINK_H

#include <uv.h>

#include "client/peer/link/outbox.h"
#include "client/peer/link/tls.h"

struct gb_peer_link;

/* The memory for a chunk of `bytes` bytes. NULL: nobody awaits the chunk, and the link ends. `land`
   is called when it is full, in any thread. The memory and `user` stay until then, or until
   gb_peer_link_close has returned. */
struct gb_peer_room {
    void *memory;
    uint64_t bytes;
    int (*land)(void *user, uint64_t sum, struct gb_error *error);
    void *user;
};

struct gb_peer_link_events {
    /* The handshake is done, and `node` is the other side. False: it may not connect, and the link
       ends. */
    bool (*open)(struct gb_peer_link *link, const char *node, void *user);
    void (*control)(struct gb_peer_link *link, uint64_t request, const char *text, size_t length,
                    void *user);
    struct gb_peer_room (*room)(struct gb_peer_link *link, uint64_t request,
                                void *user); /* may be NULL */
    /* The room is full. `error` NULL, or what `land` said. */
    void (*data)(struct gb_peer_link *link, uint64_t request, const struct gb_error *error,
                 void *user);
    /* GPUBUF_E_CLOSED: the connection was not made, or ended; another may come about.
       GPUBUF_E_DENIED, GPUBUF_E_PROTOCOL: it would end in the same way. */
    void (*closed)(struct gb_peer_link *link, const struct gb_error *why, void *user);
};

/* Connects to a machine. If its certificate names another node than `node`, the link ends. NULL:
   out of memory. */
struct gb_peer_link *gb_peer_link_connect(uv_loop_t *loop, const struct gb_peer_tls *tls,
                                          const char *node, const char *host, uint16_t port,
                                          const struct gb_peer_link_events *events, void *user);

/* A link on an accepted connection. The socket becomes the link's, also if this fails. */
struct gb_peer_link *gb_peer_link_accept(uv_loop_t *loop, const struct gb_peer_tls *tls, int fd,
                                         const struct gb_peer_link_events *events, void *user);

/* NULL is fine. */
void gb_peer_link_close(struct gb_peer_link *link);

/* Queued in order. If memory is out the link ends, in a later turn of the loop. */
void gb_peer_link_send(struct gb_peer_link *link, uint64_t request, const char *text,
                       size_t length);
void gb_peer_link_send_chunk(struct gb_peer_link *link, uint64_t request,
                             const struct gb_peer_source *source);
void gb_peer_link_send_error(struct gb_peer_link *link, uint64_t request,
                             const struct gb_error *error);

/* Stops reading, or goes on: the other side's requests wait meanwhile. */
void gb_peer_link_pause(struct gb_peer_link *link, bool paused);

/* gb_peer_link_silent: the milliseconds since anything was received. gb_peer_link_stuck: those
   since any of the waiting output was sent, or of the handshake; 0: nothing waits to be sent. */
uint64_t gb_peer_link_silent(const struct gb_peer_link *link);
uint64_t gb_peer_link_stuck(const struct gb_peer_link *link);
bool gb_peer_link_is_open(const struct gb_peer_link *link); /* the handshake is done */
bool gb_peer_link_spoke(
    const struct gb_peer_link *link); /* anything was received on an accepted link */

/* "node (host:port)" */
const char *gb_peer_link_text(const struct gb_peer_link *link);

#endif
