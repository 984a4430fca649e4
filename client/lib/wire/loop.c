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
    client->loop.set = epoll_create1(EPOLL_CLOEXEC);
    client->loop.waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->loop.set < 0 || client->loop.waker < 0 ||
        add(client->loop.set, client->loop.waker) < 0 ||
        (client->link != GB_LINK_DOWN && add(client->loop.set, client->conn.fd) < 0)) {
        gb_loop_end(client);
        return;
    }
    if (client->end.lost.code || client->deliveries.first)
        gb_loop_wake(client);
}

void gb_loop_end(struct gpubuf_client *client)
{
    if (client->loop.set >= 0)
        close(client->loop.set);
    if (client->loop.waker >= 0)
        close(client->loop.waker);
    client->loop.set = client->loop.waker = -1;
}

void gb_loop_watch(struct gpubuf_client *client, int fd)
{
    if (client->loop.set < 0)
        return;
    client->loop.output = false;
    if (fd >= 0)
        (void)add(client->loop.set, fd);
    else
        (void)epoll_ctl(client->loop.set, EPOLL_CTL_DEL, client->conn.fd, NULL);
}

void gb_loop_wake(struct gpubuf_client *client)
{
    uint64_t one = 1;

    if (client->loop.set < 0 || client->loop.woken)
        return;
    client->loop.woken = write(client->loop.waker, &one, sizeof(one)) == sizeof(one);
}

/* After the connection is lost for good the wake-up stays, so that every wait of the program's loop
   ends. */
void gb_loop_clear(struct gpubuf_client *client)
{
    uint64_t count;

    if (client->loop.woken && !client->end.lost.code)
        client->loop.woken = read(client->loop.waker, &count, sizeof(count)) < 0;
}

/* ---- the public side ---- */

int gpubuf_fd(const struct gpubuf_client *client)
{
    struct gpubuf_client *mutable = (struct gpubuf_client *)(uintptr_t)client;

    if (!client || gb_is_forked(client))
        return -1;
    pthread_mutex_lock(&mutable->lock);
    if (mutable->loop.set < 0)
        make(mutable);
    /* If descriptors have run out, the socket itself serves until a reconnect. */
    int fd = mutable->loop.set >= 0 ? mutable->loop.set : mutable->conn.fd;
    pthread_mutex_unlock(&mutable->lock);
    return fd;
}

short gpubuf_events(const struct gpubuf_client *client)
{
    struct gpubuf_client *mutable = (struct gpubuf_client *)(uintptr_t)client;

    if (!client || gb_is_forked(client))
        return 0;
    pthread_mutex_lock(&mutable->lock);
    bool output = gb_conn_has_output(&client->conn) && !client->end.write_failed;
    bool in_set = mutable->loop.set >= 0;
    if (in_set && output != mutable->loop.output && client->link != GB_LINK_DOWN) {
        struct epoll_event event = {.events = output ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.fd = client->conn.fd};
        if (epoll_ctl(client->loop.set, EPOLL_CTL_MOD, client->conn.fd, &event) == 0)
            mutable->loop.output = output;
    }
    pthread_mutex_unlock(&mutable->lock);
    return output && !in_set ? POLLIN | POLLOUT : POLLIN;
}
