/*
 * conn: over a socketpair, with a peer that is a plain socket: partial writes, descriptors in their
 * places and never twice, everything a peer can do wrong.
 */
#include "tests/cases.h"

#include "descriptors.h"
#include "failing.h"
#include "random.h"

#include "proto/wire/conn.c"
#include "proto/wire/frame.c"

struct pair {
    struct gb_conn conn;
    int peer;
    size_t fds_before;
};

static void pair_begin(struct pair *pair, int send_buffer)
{
    int fds[2];
    pair->fds_before = open_fds();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    if (send_buffer > 0) {
        assert_int_equal(
            setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer)), 0);
    }
    gb_conn_init(&pair->conn, fds[0]);
    pair->peer = fds[1];
}

/* Nothing may be left open or allocated. */
static void pair_end(struct pair *pair)
{
    gb_conn_end(&pair->conn);
    gb_conn_end(&pair->conn);
    if (pair->peer >= 0)
        close(pair->peer);
    assert_int_equal(open_fds(), pair->fds_before);
    assert_int_equal(failing_blocks, 0);
}

static void make_fds(int *fds, unsigned count, unsigned first_mark)
{
    for (unsigned i = 0; i < count; i++) {
        fds[i] = marked_fd(first_mark + i);
        assert_true(fds[i] >= 0);
    }
}

/* The peer sends `length` bytes with descriptors, plainly; they stay the caller's. */
static void peer_send(struct pair *pair, const char *bytes, size_t length, const int *fds,
                      unsigned count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))] = {0};
    struct iovec vector = {(void *)(uintptr_t)bytes, length};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    assert_int_equal(sendmsg(pair->peer, &header, MSG_NOSIGNAL), length);
}

/* ---- sending ---- */

TEST(test_plain_messages)
{
    struct pair pair;
    pair_begin(&pair, 0);
    assert_false(gb_conn_has_output(&pair.conn));
    assert_int_equal(gb_conn_flush(&pair.conn), 0);
    assert_int_equal(gb_conn_queue(&pair.conn, "one\n", 4, NULL, 0), 0);
    assert_int_equal(gb_conn_queue(&pair.conn, "two\n", 4, NULL, 0), 0);
    assert_int_equal(gb_conn_queue(&pair.conn, NULL, 0, NULL, 0), 0);
    assert_int_equal(gb_conn_output_bytes(&pair.conn), 8);
    assert_true(gb_conn_has_output(&pair.conn));
    char bytes[16];
    assert_int_equal(recv(pair.peer, bytes, sizeof(bytes), 0), -1); /* nothing was sent yet */
    assert_int_equal(gb_conn_flush(&pair.conn), 0);
    assert_int_equal(gb_conn_output_bytes(&pair.conn), 0);
    assert_null(pair.conn.out);
    assert_int_equal(recv(pair.peer, bytes, sizeof(bytes), 0), 8); /* in one piece */
    assert_memory_equal(bytes, "one\ntwo\n", 8);
    pair_end(&pair);
}

/*
 * Messages of random sizes with 0 to 16 descriptors through a socket that takes little at a time.
 * A message's first byte is '0' + its number of descriptors; the receiver demands that they have
 * come by then, in order, each once, and that none is early: while a message without any is being
 * read, none of a later one is there.
 */
TEST(test_descriptors_through_a_narrow_socket)
{
    enum { MESSAGES = 400 };
    struct pair pair;
    pair_begin(&pair, 1); /* the kernel makes it its least */
    struct gb_conn receiver;
    gb_conn_init(&receiver, pair.peer);
    pair.peer = -1;
    struct test_random random = {.state = 13};
    unsigned sent = 0, received = 0, mark_out = 0, mark_in = 0;
    bool partial = false;
    while (received < MESSAGES) {
        while (sent < MESSAGES && test_random_below(&random, 3) > 0) {
            char message[9000];
            int fds[16];
            size_t length =
                2 + test_random_below(&random, test_random_below(&random, 4) ? 40 : 8990);
            unsigned count = test_random_below(&random, 3) ? 0 : test_random_below(&random, 17);
            memset(message, 'a' + (int)(sent % 26), length);
            message[0] = (char)('0' + count);
            message[length - 1] = '\n';
            make_fds(fds, count, mark_out);
            mark_out += count;
            assert_int_equal(gb_conn_queue(&pair.conn, message, length, fds, count), 0);
            sent++;
        }
        int rc = gb_conn_flush(&pair.conn);
        assert_in_range(rc, 0, 1);
        assert_int_equal(rc == 1, gb_conn_has_output(&pair.conn));
        partial |= rc == 1;

        char buffer[700];
        size_t room = 1 + test_random_below(&random, sizeof(buffer));
        ssize_t got = gb_conn_receive(&receiver, buffer, room);
        if (got == GPUBUF_E_AGAIN)
            continue;
        assert_in_range(got, 1, room);
        gb_frame_begin(&receiver.in, buffer, (size_t)got);
        const char *line;
        size_t length;
        while ((rc = gb_frame_next(&receiver.in, &line, &length)) == 1) {
            unsigned count = (unsigned)(line[0] - '0');
            int fds[16];
            assert_int_equal(line[length - 1], length > 1 ? 'a' + (int)(received % 26) : line[0]);
            assert_int_equal(gb_frame_take_fds(&receiver.in, fds, count), 0);
            for (unsigned i = 0; i < count; i++) {
                assert_int_equal(mark_of(fds[i]), mark_in++);
                assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
                close(fds[i]);
            }
            received++;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(gb_frame_finish(&receiver.in), 0);
        if (!gb_frame_is_partial(&receiver.in))
            assert_int_equal(receiver.in.fd_count, 0);
        else
            assert_int_equal(receiver.in.fd_count, receiver.in.partial[0] - '0');
    }
    assert_true(partial); /* else the socket was not narrow */
    assert_int_equal(mark_in, mark_out);
    assert_int_equal(receiver.in.fd_count, 0);
    gb_conn_end(&receiver);
    pair_end(&pair);
}

/* A message larger than the socket's buffer: its descriptors have gone with its first bytes and are
   closed here at once, not kept to be sent again. */
TEST(test_partial_write_lets_go)
{
    enum { LARGE = 1000000 };
    struct pair pair;
    pair_begin(&pair, 1);
    size_t open_before = open_fds();
    int fds[3];
    make_fds(fds, 3, 70);
    char *message = malloc(LARGE);
    memset(message, 'x', LARGE);
    assert_int_equal(gb_conn_queue(&pair.conn, message, LARGE, fds, 3), 0);
    assert_int_equal(gb_conn_flush(&pair.conn), 1);
    assert_int_equal(open_fds(), open_before);
    struct gb_conn receiver;
    gb_conn_init(&receiver, pair.peer);
    pair.peer = -1;
    size_t total = 0;
    while (total < LARGE) {
        ssize_t got = gb_conn_receive(&receiver, message, LARGE);
        if (got > 0)
            total += (size_t)got;
        else
            assert_int_equal(got, GPUBUF_E_AGAIN);
        assert_in_range(gb_conn_flush(&pair.conn), 0, 1);
    }
    free(message);
    assert_int_equal(receiver.in.fd_count, 3);
    gb_conn_end(&receiver);
    pair_end(&pair);
}

/* No more descriptors go than are allowed; what waits stays whole, and goes when more are. */
TEST(test_descriptors_that_may_not_go)
{
    struct pair pair;
    pair_begin(&pair, 1);
    pair.conn.limits_fds = true;
    pair.conn.fds_allowed = 3;
    char buffer[64];
    int fds[2];
    for (int i = 0; i < 3; i++) {
        make_fds(fds, 2, 70 + 2 * (unsigned)i);
        assert_int_equal(gb_conn_queue(&pair.conn, "message\n", 8, fds, 2), 0);
    }
    assert_int_equal(gb_conn_flush(&pair.conn), GB_CONN_FDS_WAIT);
    assert_int_equal(pair.conn.fds_allowed, 1);
    assert_int_equal(pair.conn.out_fd_count, 4);
    assert_int_equal(gb_conn_output_bytes(&pair.conn), 16);
    struct gb_conn receiver;
    gb_conn_init(&receiver, pair.peer);
    pair.peer = -1;
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), 8);
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), GPUBUF_E_AGAIN);
    pair.conn.fds_allowed = 4;
    assert_int_equal(gb_conn_flush(&pair.conn), 0);
    assert_int_equal(pair.conn.out_fd_count, 0);
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), 8);
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), 8);
    assert_int_equal(receiver.in.fd_count, 6);
    gb_conn_end(&receiver);
    pair_end(&pair);
}

/* When what was sent makes way for more, descriptors that wait keep to their message. */
TEST(test_room_made_under_waiting_descriptors)
{
    enum { LARGE = 16000, CAPACITY = 16384 };
    struct pair pair;
    pair_begin(&pair, 1);
    char *bytes = malloc(CAPACITY);
    memset(bytes, 'a', LARGE);
    assert_int_equal(gb_conn_queue(&pair.conn, bytes, LARGE, NULL, 0), 0);
    assert_int_equal(pair.conn.out_capacity, CAPACITY);
    size_t read = 0;
    for (int rc = gb_conn_flush(&pair.conn); pair.conn.out_sent < LARGE / 2 + 600;
         rc = gb_conn_flush(&pair.conn)) {
        assert_int_equal(rc, 1);
        ssize_t got = recv(pair.peer, bytes, 256, 0);
        assert_in_range(got, 1, 256);
        read += (size_t)got;
    }
    assert_true(gb_conn_has_output(&pair.conn));
    int fd = marked_fd(77);
    memset(bytes, 'b', 500);
    assert_int_equal(gb_conn_queue(&pair.conn, bytes, 300, &fd, 1), 0);
    assert_int_equal(gb_conn_queue(&pair.conn, bytes, 200, NULL, 0), 0);
    assert_int_equal(pair.conn.out_capacity, CAPACITY);
    assert_int_equal(pair.conn.out_sent, 0);

    struct gb_conn receiver;
    gb_conn_init(&receiver, pair.peer);
    pair.peer = -1;
    while (read < LARGE + 500) {
        assert_in_range(gb_conn_flush(&pair.conn), 0, 1);
        ssize_t got = gb_conn_receive(&receiver, bytes, 512);
        assert_in_range(got, 1, 512);
        /* They come with the first byte of their message and with no other. */
        const char *first = memchr(bytes, 'b', (size_t)got);
        if (read < LARGE)
            assert_int_equal(receiver.in.fd_count, first != NULL);
        read += (size_t)got;
    }
    free(bytes);
    assert_int_equal(receiver.in.fd_count, 1);
    assert_int_equal(mark_of(receiver.in.fds[0]), 77);
    gb_conn_end(&receiver);
    pair_end(&pair);
}

TEST(test_queue_refuses)
{
    struct pair pair;
    pair_begin(&pair, 0);
    size_t open_before = open_fds();
    int fds[GB_LIMIT(fds) + 1];
    make_fds(fds, GB_LIMIT(fds) + 1, 0);
    assert_int_equal(gb_conn_queue(&pair.conn, "x\n", 2, fds, GB_LIMIT(fds) + 1),
                     GPUBUF_E_INTERNAL);
    make_fds(fds, 1, 0);
    assert_int_equal(gb_conn_queue(&pair.conn, "", 0, fds, 1), GPUBUF_E_INTERNAL);
    assert_int_equal(open_fds(), open_before);
    assert_false(gb_conn_has_output(&pair.conn));
    pair_end(&pair);
}

/* Nothing is left behind where it says so. */
TEST(test_drained)
{
    struct pair pair, other;
    pair_begin(&pair, 0);
    pair_begin(&other, 0);
    char buffer[8];
    assert_int_equal(send(pair.peer, "12345678abc", 11, 0), 11);
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 8);
    assert_false(pair.conn.drained);
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 3);
    assert_true(pair.conn.drained);

    /* A read ends behind descriptors, with more to come. */
    int fd = marked_fd(1);
    assert_int_equal(gb_conn_queue(&other.conn, "x\n", 2, &fd, 1), 0);
    assert_int_equal(gb_conn_flush(&other.conn), 0);
    assert_int_equal(send(other.conn.fd, "y\n", 2, 0), 2);
    struct gb_conn receiver;
    gb_conn_init(&receiver, other.peer);
    other.peer = -1;
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), 2);
    assert_false(receiver.drained);
    assert_int_equal(gb_conn_receive(&receiver, buffer, sizeof(buffer)), 2);
    assert_true(receiver.drained);
    gb_conn_end(&receiver);
    pair_end(&other);
    pair_end(&pair);
}

TEST(test_closed_peer)
{
    struct pair pair;
    pair_begin(&pair, 0);
    int fd = marked_fd(1);
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(gb_conn_queue(&pair.conn, "x\n", 2, &fd, 1), 0);
    assert_int_equal(gb_conn_flush(&pair.conn), GPUBUF_E_CLOSED);
    char buffer[8];
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 0);
    pair_end(&pair);

    /* Closed with our data unread: what it sent before comes first, then the end. */
    pair_begin(&pair, 0);
    assert_int_equal(send(pair.conn.fd, "unread", 6, 0), 6);
    assert_int_equal(send(pair.peer, "last", 4, 0), 4);
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 4);
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 0);
    pair_end(&pair);

    pair_begin(&pair, 0);
    close(pair.conn.fd);
    pair.conn.fd = -1;
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), GPUBUF_E_SYSTEM);
    assert_int_equal(errno, EBADF);
    assert_int_equal(gb_conn_queue(&pair.conn, "x\n", 2, NULL, 0), 0);
    assert_int_equal(gb_conn_flush(&pair.conn), GPUBUF_E_SYSTEM);
    assert_int_equal(errno, EBADF);
    pair_end(&pair);
}

/* ---- receiving ---- */

/* Receives eight descriptors with room for `room`. */
static void receive_with_room(unsigned room)
{
    struct pair pair;
    char buffer[8];
    pair_begin(&pair, 0);
    int fds[8];
    make_fds(fds, 8, 0);
    peer_send(&pair, "x", 1, fds, 8);
    drop_fds(fds, 8);
    size_t open_before = open_fds();
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int highest = dup(pair.peer); /* the lowest free number, so all below are taken */
    assert_true(highest >= 0);
    struct rlimit low = {.rlim_cur = (rlim_t)highest + 1 + room, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    ssize_t got = gb_conn_receive(&pair.conn, buffer, sizeof(buffer));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(highest);
    assert_int_equal(got, GPUBUF_E_PROTOCOL);
    assert_int_equal(pair.conn.in.fd_count, 0);
    assert_int_equal(open_fds(), open_before);
    pair_end(&pair);
}

/* A process that may open no more descriptors gets fewer than were sent, or none: an error. */
TEST(test_no_room_for_fds)
{
    if (getenv("GPUBUF_WRAPPER")) {
        print_message("skipped: valgrind does not put the limit of descriptors into force\n");
        skip();
    }
    receive_with_room(2);
    receive_with_room(0);
}

TEST(test_other_control_messages)
{
    struct pair pair;
    char buffer[8];
    pair_begin(&pair, 0);
    int on = 1, fd = marked_fd(9);
    assert_int_equal(setsockopt(pair.conn.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    peer_send(&pair, "x", 1, &fd, 1);
    close(fd);
    assert_int_equal(gb_conn_receive(&pair.conn, buffer, sizeof(buffer)), 1);
    assert_int_equal(pair.conn.in.fd_count, 1);
    assert_int_equal(mark_of(pair.conn.in.fds[0]), 9);
    pair_end(&pair);
}

RUN_TESTS(NULL, NULL)
