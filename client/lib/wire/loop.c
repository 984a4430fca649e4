#include "client/lib/wire/loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int add(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static void make(struct gpubuf_client *client)
{
    client->loop = epoll_create1(EPOLL_CLOEXEC);
    client->loop_waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->loop < 0 || client->loop_waker < 0 || add(client->loop, client->loop_waker) < 0 ||
        (client->link != GB_LINK_DOWN && add(client->loop, client->conn.fd) < 0)) {
        gb_loop_end(client);
        return;
    }
    if (client->lost.code || client->deliveries)
        gb_loop_wake(client);
}

void gb_loop_end(struct gpubuf_client *client)
{
    if (client->loop >= 0)
        close(client->loop);
    if (client->loop_waker >= 0)
        close(client->loop_waker);
    client->loop = client->loop_waker = -1;
}

void gb_loop_watch(struct gpubuf_client *client, int fd)
{
    if (client->loop < 0)
        return;
    client->loop_output = false;
    if (fd >= 0)
        (void)add(client->loop, fd);
    else
        (void)epoll_ctl(client->loop, EPOLL_CTL_DEL, client->conn.fd, NULL);
}

void gb_loop_wake(struct gpubuf_client *client)
{
    uint64_t one = 1;

    if (client->loop < 0 || client->loop_woken)
        return;
    client->loop_woken = write(client->loop_waker, &one, sizeof(one)) == sizeof(one);
}

/* After the connection is lost for good the wake-up stays, so that every wait of the program's loop
   ends. */
void gb_loop_clear(struct gpubuf_client *client)
{
    uint64_t count;

    if (client->loop_woken && !client->lost.code)
        client->loop_woken = read(client->loop_waker, &count, sizeof(count)) < 0;
}

/* ---- the public side ---- */

int gpubuf_fd(const struct gpubuf_client *client)
{
    struct gpubuf_client *mutable = (struct gpubuf_client *)(uintptr_t)client;

    if (!client || gb_is_forked(client))
        return -1;
    pthread_mutex_lock(&mutable->lock);
    if (mutable->loop < 0)
        make(mutable);
    /* If descriptors have run out, the socket itself serves until a reconnect. */
    int fd = mutable->loop >= 0 ? mutable->loop : mutable->conn.fd;
    pthread_mutex_unlock(&mutable->lock);
    return fd;
}

short gpubuf_events(const struct gpubuf_client *client)
{
    struct gpubuf_client *mutable = (struct gpubuf_client *)(uintptr_t)client;

    if (!client || gb_is_forked(client))
        return 0;
    pthread_mutex_lock(&mutable->lock);
    bool output = gb_conn_has_output(&client->conn) && !client->write_failed;
    bool in_set = mutable->loop >= 0;
    if (in_set && output != mutable->loop_output && client->link != GB_LINK_DOWN) {
        struct epoll_event event = {.events = output ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.fd = client->conn.fd};
        if (epoll_ctl(client->loop, EPOLL_CTL_MOD, client->conn.fd, &event) == 0)
            mutable->loop_output = output;
    }
    pthread_mutex_unlock(&mutable->lock);
    return output && !in_set ? POLLIN | POLLOUT : POLLIN;
}
