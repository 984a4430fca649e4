/*
 * events: what strangers may send to where events are published: the handshakes of NNG's transports and
 * what may come after them, with events told in between.
 *
 * The first byte chooses the transport, and where the rest is cut in two. Whatever comes, what is sent
 * back is the daemon's greeting and whole messages; and nothing is left.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/observe/subscriber.h"
#include "demand.h"

static const char topic[] = "sealed a", json[] = "{\"seq\":1}";

static void wake(void *arg)
{
    (void)arg;
}

static void turn(uv_loop_t *loop)
{
    for (int i = 0; i < 3; i++)
        uv_run(loop, UV_RUN_NOWAIT);
}

/* Whole messages, one after the other. */
static void check_messages(const char *text, size_t length, bool ipc)
{
    const size_t body = sizeof(topic) + sizeof(json) - 1; /* a newline instead of the topic's NUL */
    const size_t head = ipc ? 9 : 8;

    DEMAND(length % (head + body) == 0);
    for (size_t at = 0; at < length; at += head + body) {
        DEMAND(!ipc || text[at] == 1);
        DEMAND((unsigned char)text[at + head - 1] == body);
        DEMAND(memcmp(text + at + head, "sealed a\n{", 10) == 0);
    }
}

static void check_heard(int fd, enum gb_framing framing)
{
    char heard[4096];
    ssize_t n = recv(fd, heard, sizeof(heard), MSG_DONTWAIT);

    if (framing == GB_FRAMING_WS) {
        DEMAND(n <= 0 || memcmp(heard, "HTTP/1.1 101 ", 13) == 0);
        return;
    }
    if (n < 0)
        return; /* hung up on before the greeting was read */
    if (n > 0) {
        DEMAND(n >= 8 && memcmp(heard, "\0SP\0\0\x20\0\0", 8) == 0);
        check_messages(heard + 8, (size_t)n - 8, framing == GB_FRAMING_IPC);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_subscribers subscribers;
    struct gb_outlet outlet;
    struct gb_batch *batch = gb_batch_new();
    enum gb_framing framing;
    uv_loop_t loop;
    size_t cut;
    int fds[2];

    if (size < 1 || size > 16384 || !batch)
        return gb_batch_unref(batch), 0;
    framing = (enum gb_framing)(data[0] % GB_FRAMINGS);
    cut = data[0] / GB_FRAMINGS % size;
    DEMAND(gb_batch_add(batch, GB_AUDIENCE_ALL, topic, sizeof(topic) - 1, json, sizeof(json) - 1));
    DEMAND(gb_batch_add(batch, GB_AUDIENCE_PUBLIC, "x", 1, "{}", 2));
    DEMAND(uv_loop_init(&loop) == 0);
    DEMAND(gb_outlet_init(&outlet, 1 << 20, wake, NULL) == 0);
    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    gb_subscribers_init(&subscribers, &loop, &outlet);
    gb_subscriber_new(&subscribers, fds[0], framing, GB_AUDIENCE_ALL);
    turn(&loop);
    for (size_t at = 1; at<size; at = cut + 1> at ? cut + 1 : size) {
        size_t end = at <= cut ? cut + 1 : size;

        if (end > at)
            (void)!send(fds[1], data + at, end - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        turn(&loop);
        gb_subscribers_tell(&subscribers, batch);
        turn(&loop);
        if (end == size)
            break;
    }
    DEMAND(atomic_load(&outlet.takers) <= 1);
    check_heard(fds[1], framing);
    close(fds[1]);
    gb_subscribers_end(&subscribers);
    uv_run(&loop, UV_RUN_DEFAULT);
    DEMAND(gb_list_empty(&subscribers.list) && atomic_load(&outlet.takers) == 0);
    DEMAND(uv_loop_close(&loop) == 0);
    gb_outlet_end(&outlet);
    DEMAND(atomic_load(&batch->references) == 1);
    gb_batch_unref(batch);
    return 0;
}
