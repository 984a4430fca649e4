#include "client/peer/link/dial.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The time for an address that another one follows: a dead machine does not answer. */
#define ADDRESS_MS 2000

struct gb_peer_dial {
    uv_loop_t *loop;
    gb_peer_dialed_cb callback; /* NULL: stopped */
    void *user;
    uv_getaddrinfo_t lookup;
    struct addrinfo *addresses, *address; /* the address that is tried */
    uv_poll_t poll;
    uv_timer_t timer;
    int fd, number; /* errno of the last address that failed; 0: connected */
    int refused;    /* libuv's code, if the lookup could not even begin */
    bool looking, polling;
};

static void try_next(struct gb_peer_dial *dial);

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void finish(struct gb_peer_dial *dial, int fd, const char *why)
{
    if (dial->callback)
        dial->callback(dial->user, fd, why);
    else if (fd >= 0)
        close(fd);
    if (dial->addresses)
        uv_freeaddrinfo(dial->addresses);
    uv_close((uv_handle_t *)&dial->timer, on_timer_closed);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct gb_peer_dial *dial = handle->data;

    dial->polling = false;
    if (dial->number == 0 || !dial->callback) {
        finish(dial, dial->fd, "");
        return;
    }
    close(dial->fd);
    dial->address = dial->address->ai_next;
    try_next(dial);
}

static void leave_address(struct gb_peer_dial *dial)
{
    (void)uv_timer_stop(&dial->timer);
    uv_close((uv_handle_t *)&dial->poll, on_poll_closed);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct gb_peer_dial *dial = poll->data;
    socklen_t length = sizeof(dial->number);

    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &dial->number, &length) < 0)
        dial->number = errno;
    leave_address(dial);
}

static void on_timer(uv_timer_t *timer)
{
    struct gb_peer_dial *dial = timer->data;

    if (dial->refused) {
        finish(dial, -1, uv_strerror(dial->refused));
        return;
    }
    dial->number = ETIMEDOUT;
    leave_address(dial);
}

static bool try_address(struct gb_peer_dial *dial, const struct addrinfo *address)
{
    dial->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->fd >= 0 &&
        (connect(dial->fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) &&
        uv_poll_init_socket(dial->loop, &dial->poll, dial->fd) == 0) {
        dial->poll.data = dial;
        dial->polling = true;
        (void)uv_poll_start(&dial->poll, UV_WRITABLE, on_writable);
        if (address->ai_next)
            (void)uv_timer_start(&dial->timer, on_timer, ADDRESS_MS, 0);
        return true;
    }
    dial->number = errno;
    if (dial->fd >= 0)
        close(dial->fd);
    return false;
}

static void try_next(struct gb_peer_dial *dial)
{
    for (; dial->address; dial->address = dial->address->ai_next)
        if (try_address(dial, dial->address))
            return;
    finish(dial, -1, strerror(dial->number));
}

static void on_address(uv_getaddrinfo_t *lookup, int status, struct addrinfo *addresses)
{
    struct gb_peer_dial *dial = lookup->data;

    dial->looking = false;
    dial->addresses = dial->address = addresses;
    dial->number = EHOSTUNREACH;
    if (!dial->callback)
        finish(dial, -1, "");
    else if (status < 0)
        finish(dial, -1, uv_strerror(status));
    else
        try_next(dial);
}

struct gb_peer_dial *gb_peer_dial(uv_loop_t *loop, const char *host, uint16_t port,
                                  gb_peer_dialed_cb callback, void *user)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct gb_peer_dial *dial = calloc(1, sizeof(*dial));
    char service[8];

    if (!dial)
        return NULL;
    *dial = (struct gb_peer_dial){.loop = loop, .callback = callback, .user = user, .fd = -1};
    dial->lookup.data = dial->timer.data = dial;
    (void)uv_timer_init(loop, &dial->timer); /* cannot fail */
    snprintf(service, sizeof(service), "%u", port);
    dial->refused = uv_getaddrinfo(loop, &dial->lookup, on_address, host, service, &hints);
    if (dial->refused) /* such as a name that IDNA does not allow */
        (void)uv_timer_start(&dial->timer, on_timer, 0, 0);
    dial->looking = !dial->refused;
    return dial;
}

void gb_peer_dial_stop(struct gb_peer_dial *dial)
{
    if (!dial)
        return;
    dial->callback = NULL;
    if (dial->looking)
        (void)uv_cancel((uv_req_t *)&dial->lookup);
    else if (dial->polling && !uv_is_closing((uv_handle_t *)&dial->poll))
        leave_address(dial);
    else if (dial->refused)
        finish(dial, -1, "");
}
