#include "proto/wire/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gpubuf.h"

#define OUT_CAPACITY_MIN ((size_t)1024)

/* Room for as many descriptors as the kernel lets through at once (SCM_MAX_FD). The kernel closes
   descriptors without room while we receive, and closing what a peer has sent may block. */
#define RECEIVE_FDS 253

struct gb_conn_fds {
    struct gb_conn_fds *next;
    size_t at; /* place in `out` of the first byte of their message */
    unsigned count;
    int fds[];
};

static void drop_fds(const int *fds, unsigned count)
{
    int saved = errno;

    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    errno = saved;
}

void gb_conn_init(struct gb_conn *conn, int fd)
{
    *conn = (struct gb_conn){.fd = fd};
}

static void pop_fds(struct gb_conn *conn)
{
    struct gb_conn_fds *first = conn->out_fds;

    conn->out_fds = first->next;
    conn->out_fd_count -= first->count;
    drop_fds(first->fds, first->count);
    free(first);
}

void gb_conn_reset(struct gb_conn *conn)
{
    while (conn->out_fds)
        pop_fds(conn);
    free(conn->out);
    gb_frame_end(&conn->in);
    *conn = (struct gb_conn){
        .fd = conn->fd, .sent = conn->sent, .in = conn->in, .limits_fds = conn->limits_fds};
}

void gb_conn_end(struct gb_conn *conn)
{
    gb_conn_reset(conn);
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

/* ---- receiving ---- */

/* Copies the descriptors of all SCM_RIGHTS messages to `fds`, which has room for what the control
   buffer can hold. Returns how many. */
static unsigned collect_fds(struct msghdr *header, int *fds)
{
    unsigned count = 0;

    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
         control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        memcpy(fds + count, CMSG_DATA(control), bytes);
        count += (unsigned)(bytes / sizeof(int));
    }
    return count;
}

ssize_t gb_conn_receive(struct gb_conn *conn, char *buffer, size_t size)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(RECEIVE_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec vector = {.iov_base = buffer, .iov_len = size};
    struct msghdr header = {
        .msg_iov = &vector,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };

    ssize_t received;
    do {
        received = recvmsg(conn->fd, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    /* recvmsg() stops early only at the end of what is there, and behind descriptors. */
    conn->drained = received < (ssize_t)size && header.msg_controllen == 0;
    if (received < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return GPUBUF_E_AGAIN;
        /* The peer closed without reading all that it was sent. */
        return errno == ECONNRESET ? 0 : GPUBUF_E_SYSTEM;
    }

    if (header.msg_controllen > 0) {
        int fds[sizeof(control.bytes) / sizeof(int)];
        unsigned count = collect_fds(&header, fds);
        if (header.msg_flags & MSG_CTRUNC) {
            gb_frame_drop(&conn->in, fds, count);
            return GPUBUF_E_PROTOCOL;
        }
        int r = gb_frame_push_fds(&conn->in, fds, count);
        if (r < 0)
            return r;
    }
    return header.msg_flags & MSG_CTRUNC ? GPUBUF_E_PROTOCOL : received;
}

/* ---- sending ---- */

/* Makes room for `length` more bytes. Moves the unsent bytes to the front if that frees enough and
   they are no more than the sent ones, so that each byte costs the same; else grows. */
static int reserve_out(struct gb_conn *conn, size_t length)
{
    size_t unsent = conn->out_length - conn->out_sent;

    if (length <= conn->out_capacity - conn->out_length)
        return 0;
    if (conn->out_sent >= unsent && length <= conn->out_capacity - unsent) {
        memmove(conn->out, conn->out + conn->out_sent, unsent);
        for (struct gb_conn_fds *fds = conn->out_fds; fds; fds = fds->next)
            fds->at -= conn->out_sent;
        conn->out_length = unsent;
        conn->out_sent = 0;
        return 0;
    }

    size_t needed;
    if (__builtin_add_overflow(conn->out_length, length, &needed) || needed > SIZE_MAX / 2)
        return GPUBUF_E_NO_MEMORY;
    size_t capacity = conn->out_capacity < OUT_CAPACITY_MIN ? OUT_CAPACITY_MIN : conn->out_capacity;
    while (capacity < needed)
        capacity *= 2;
    char *out = realloc(conn->out, capacity);
    if (!out)
        return GPUBUF_E_NO_MEMORY;
    conn->out = out;
    conn->out_capacity = capacity;
    return 0;
}

static void free_out(struct gb_conn *conn)
{
    free(conn->out);
    conn->out = NULL;
    conn->out_length = conn->out_sent = conn->out_capacity = 0;
}

/* Notes that descriptors ride on the next byte that is queued. They are the queue's, also on
   failure. */
static int queue_fds(struct gb_conn *conn, const int *fds, unsigned count)
{
    if (count == 0)
        return 0;
    struct gb_conn_fds *entry = malloc(sizeof(*entry) + count * sizeof(int));
    if (!entry) {
        drop_fds(fds, count);
        return GPUBUF_E_NO_MEMORY;
    }
    entry->next = NULL;
    entry->at = conn->out_length;
    entry->count = count;
    memcpy(entry->fds, fds, count * sizeof(int));
    if (!conn->out_fds)
        conn->out_fds = entry;
    else
        conn->out_fds_last->next = entry;
    conn->out_fds_last = entry;
    conn->out_fd_count += count;
    return 0;
}

int gb_conn_queue(struct gb_conn *conn, const char *message, size_t length, const int *fds,
                  unsigned count)
{
    int r;

    if (length == 0 || count > GB_LIMIT(fds))
        r = length == 0 && count == 0 ? 0 : GPUBUF_E_INTERNAL;
    else
        r = reserve_out(conn, length);
    if (r < 0 || length == 0) {
        drop_fds(fds, count);
        return r;
    }
    r = queue_fds(conn, fds, count);
    if (r < 0)
        return r;
    memcpy(conn->out + conn->out_length, message, length);
    conn->out_length += length;
    return 0;
}

int gb_conn_queue_written(struct gb_conn *conn, struct gb_writer *writer, const int *fds,
                          unsigned count)
{
    if (conn->out || writer->length < GB_LONG_BYTES || count > GB_LIMIT(fds))
        return gb_conn_queue(conn, writer->data, writer->length, fds, count);
    int r = queue_fds(conn, fds, count);
    if (r < 0)
        return r;
    conn->out = writer->data;
    conn->out_length = writer->length;
    conn->out_capacity = writer->capacity;
    writer->data = NULL;
    writer->length = writer->capacity = 0;
    return 0;
}

/* One sendmsg with the descriptors of the queue's first entry on the first byte. */
static ssize_t send_with_fds(int fd, char *bytes, size_t length, const struct gb_conn_fds *fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(GB_LIMIT(fds) * sizeof(int))];
    } control;
    size_t size = fds->count * sizeof(int);
    struct iovec vector = {.iov_base = bytes, .iov_len = length};
    struct msghdr header = {
        .msg_iov = &vector,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = CMSG_SPACE(size),
    };
    memset(&control, 0, sizeof(control));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(rights), fds->fds, size);
    return sendmsg(fd, &header, MSG_NOSIGNAL);
}

/*
 * One system call, of at most `most` bytes, which carries the descriptors of one message at most:
 * those of the first, if it has any. It ends before the next message that has some. Once the socket
 * has taken a byte it has taken the descriptors too, and they are dropped here. Most messages have
 * none, and send() is cheaper than sendmsg().
 */
static ssize_t send_some(struct gb_conn *conn, size_t most)
{
    struct gb_conn_fds *first = conn->out_fds;
    bool with_fds = first && first->at == conn->out_sent;
    const struct gb_conn_fds *stop = with_fds ? first->next : first;
    size_t end = stop ? stop->at : conn->out_length;
    char *bytes = conn->out + conn->out_sent;
    size_t left = end - conn->out_sent;
    size_t length = left < most ? left : most;

    ssize_t sent;
    if (with_fds && conn->limits_fds && first->count > conn->fds_allowed) {
        errno = ETOOMANYREFS;
        return -1;
    }
    do {
        sent = with_fds ? send_with_fds(conn->fd, bytes, length, first)
                        : send(conn->fd, bytes, length, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent > 0) {
        conn->out_sent += (size_t)sent;
        conn->sent += (size_t)sent;
        if (with_fds) {
            conn->fds_allowed -= conn->limits_fds ? first->count : 0;
            pop_fds(conn);
        }
    }
    return sent;
}

int gb_conn_flush_some(struct gb_conn *conn, size_t most)
{
    while (gb_conn_has_output(conn)) {
        ssize_t sent = most > 0 ? send_some(conn, most) : 0;
        if (sent > 0) {
            most -= (size_t)sent;
            continue;
        }
        if (sent == 0)
            return 1;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 1;
        if (errno == ETOOMANYREFS && conn->limits_fds)
            return GB_CONN_FDS_WAIT;
        return errno == EPIPE || errno == ECONNRESET ? GPUBUF_E_CLOSED : GPUBUF_E_SYSTEM;
    }
    free_out(conn);
    return 0;
}

int gb_conn_flush(struct gb_conn *conn)
{
    return gb_conn_flush_some(conn, SIZE_MAX);
}

bool gb_conn_has_output(const struct gb_conn *conn)
{
    return conn->out_sent < conn->out_length;
}

size_t gb_conn_output_bytes(const struct gb_conn *conn)
{
    return conn->out_length - conn->out_sent;
}
