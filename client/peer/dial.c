#include "client/peer/dial.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct gb_dial {
    uv_loop_t *loop;
    gb_dialed_cb callback; /* NULL: stopped */
    void *user;
    uv_getaddrinfo_t lookup;
    struct addrinfo *addresses, *address; /* the one that is tried */
    uv_poll_t poll;
    int fd, number; /* errno of the last one that failed; 0: it is connected */
    bool looking, polling;
};

static void try_next(struct gb_dial *dial);

static void finish(struct gb_dial *dial, int fd, const char *why)
{
    if (dial->callback)
        dial->callback(dial->user, fd, why);
    else if (fd >= 0)
        close(fd);
    if (dial->addresses)
        uv_freeaddrinfo(dial->addresses);
    free(dial);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct gb_dial *dial = handle->data;

    dial->polling = false;
    if (dial->number == 0 || !dial->callback) {
        finish(dial, dial->fd, "");
        return;
    }
    close(dial->fd);
    dial->address = dial->address->ai_next;
    try_next(dial);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct gb_dial *dial = poll->data;
    socklen_t length = sizeof(dial->number);

    (void)status;
    (void)events;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &dial->number, &length) < 0)
        dial->number = errno;
    uv_close((uv_handle_t *)poll, on_poll_closed);
}

static bool try_address(struct gb_dial *dial, const struct addrinfo *address)
{
    dial->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->fd >= 0 &&
        (connect(dial->fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) &&
        uv_poll_init_socket(dial->loop, &dial->poll, dial->fd) == 0) {
        dial->poll.data = dial;
        dial->polling = true;
        (void)uv_poll_start(&dial->poll, UV_WRITABLE, on_writable);
        return true;
    }
    dial->number = errno;
    if (dial->fd >= 0)
        close(dial->fd);
    return false;
}

static void try_next(struct gb_dial *dial)
{
    for (; dial->address; dial->address = dial->address->ai_next)
        if (try_address(dial, dial->address))
            return;
    finish(dial, -1, strerror(dial->number));
}

static void on_address(uv_getaddrinfo_t *lookup, int status, struct addrinfo *addresses)
{
    struct gb_dial *dial = lookup->data;

    dial->looking = false;
    dial->addresses = dial->address = addresses;
    dial->number = EHOSTUNREACH;
    if (status < 0 || !dial->callback)
        finish(dial, -1, uv_strerror(status));
    else
        try_next(dial);
}

struct gb_dial *gb_dial(uv_loop_t *loop, const char *host, uint16_t port, gb_dialed_cb callback,
                        void *user)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct gb_dial *dial = calloc(1, sizeof(*dial));
    char service[8];

    if (!dial)
        return NULL;
    *dial = (struct gb_dial){.loop = loop, .callback = callback, .user = user, .fd = -1};
    dial->lookup.data = dial;
    snprintf(service, sizeof(service), "%u", port);
    if (uv_getaddrinfo(loop, &dial->lookup, on_address, host, service, &hints) != 0) {
        free(dial);
        return NULL;
    }
    dial->looking = true;
    return dial;
}

void gb_dial_stop(struct gb_dial *dial)
{
    if (!dial)
        return;
    dial->callback = NULL;
    if (dial->looking)
        (void)uv_cancel((uv_req_t *)&dial->lookup);
    else if (dial->polling && !uv_is_closing((uv_handle_t *)&dial->poll))
        uv_close((uv_handle_t *)&dial->poll, on_poll_closed);
}
