/*
 * A non-blocking unix stream socket with descriptors: recvmsg into a frame, an output queue with
 * sendmsg. Owns the socket. No thread-safety of its own; no event loop: poll fd for reading always
 * and for writing while gb_conn_has_output().
 */
#ifndef GB_CONN_H
#define GB_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/wire/frame.h"
#include "proto/wire/json.h"

struct gb_conn_fds; /* descriptors queued for sending, with the place of their message */

struct gb_conn {
    int fd;
    struct gb_frame in;
    bool drained;  /* the last receive left nothing unread in the socket at that time */
    uint64_t sent; /* bytes, ever */
    char *out;     /* NULL when nothing is queued */
    size_t out_length, out_sent, out_capacity;
    struct gb_conn_fds *out_fds;      /* in order; NULL when none */
    struct gb_conn_fds *out_fds_last; /* only while out_fds is not NULL */
    unsigned out_fd_count;            /* in out_fds */
    bool limits_fds;                  /* no more descriptors are sent than fds_allowed */
    uint64_t fds_allowed;             /* goes down with each descriptor that is sent */
};

/* A positive outcome of sending: the next message waits until its descriptors may be sent. */
#define GB_CONN_FDS_WAIT 2

/* Takes over `fd`, which must be non-blocking. */
void gb_conn_init(struct gb_conn *conn, int fd);
/* Closes everything. Idempotent. */
void gb_conn_end(struct gb_conn *conn);
/* Forgets what was received and queued, descriptors included; the socket stays open. */
void gb_conn_reset(struct gb_conn *conn);

/*
 * Receives once into `buffer` (scratch of the caller, not empty) and queues descriptors in
 * conn->in. Returns bytes read, 0 at the end of the stream (also when the peer closed it with data
 * unread), GPUBUF_E_AGAIN, GPUBUF_E_PROTOCOL (MSG_CTRUNC), GPUBUF_E_LIMIT (too many descriptors),
 * GPUBUF_E_NO_MEMORY, GPUBUF_E_SYSTEM (errno set). The caller then hands the bytes to
 * gb_frame_begin(&conn->in, …).
 */
ssize_t gb_conn_receive(struct gb_conn *conn, char *buffer, size_t size);

/*
 * Queues a message (a whole line with its newline) and `count` descriptors, which ride on its first
 * byte. The descriptors become the queue's, also on failure (then closed). Nothing is sent yet.
 * GPUBUF_E_NO_MEMORY.
 */
int gb_conn_queue(struct gb_conn *conn, const char *message, size_t length, const int *fds,
                  unsigned count);
/* The same. A long message is not copied if the queue is empty: the writer's memory becomes the
   queue's, and the writer is empty then. */
int gb_conn_queue_written(struct gb_conn *conn, struct gb_writer *writer, const int *fds,
                          unsigned count);
/* Sends what the socket takes. 0: all sent (and the queue's memory freed), 1: more is left,
   GB_CONN_FDS_WAIT (only if limits_fds: the next message has more descriptors than fds_allowed, or
   the kernel has too many of this user's in flight), GPUBUF_E_CLOSED (EPIPE, ECONNRESET),
   GPUBUF_E_SYSTEM (errno set). */
int gb_conn_flush(struct gb_conn *conn);
/* The same, of at most `most` bytes. */
int gb_conn_flush_some(struct gb_conn *conn, size_t most);
bool gb_conn_has_output(const struct gb_conn *conn);
size_t gb_conn_output_bytes(const struct gb_conn *conn); /* queued and not sent */

#endif
