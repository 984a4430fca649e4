#include "daemon/serve/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "proto/base/limits.h"

#define COPIES 253u        /* descriptors in one message: what the kernel lets through */
#define NOTHING_UNREAD 256 /* the kernel counts more octets for a message of a single one */
#define CHECKS 64          /* sessions that are looked at in one call */
#define TRIES 8            /* sessions whose output is sent again in one call */
#define GROUNDED_MS 2
#define LINGERING_MS 100

/* ---- beginning ---- */

static bool send_copies(int socket_fd, int fd, unsigned count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(COPIES * sizeof(int))];
    } control = {.bytes = {0}};
    int fds[COPIES] = {0};
    struct iovec vector = {.iov_base = "", .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    for (unsigned i = 0; i < count; i++)
        fds[i] = fd;
    *rights = (struct cmsghdr){CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    return sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

/* How many descriptors the kernel sends, in batches of `copies` and at most `most`. The last batch
   does not count: the kernel checks its limit before a batch, not after. */
static uint64_t send_all(int fd, unsigned copies, uint64_t most)
{
    uint64_t sent = 0;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return most;
    while (sent < most && send_copies(ends[0], fd, copies))
        sent += copies;
    if (sent < most && errno != ETOOMANYREFS)
        sent = most; /* the socket is full */
    close(ends[0]);
    close(ends[1]);
    if (sent >= most)
        return most;
    return sent > copies ? sent - copies : 1;
}

uint64_t gb_flight_measure(uint64_t most)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint64_t room;

    if (fd < 0)
        return most;
    room = send_all(fd, COPIES, most);
    if (room < GB_LIMIT(fds) * COPIES) /* little: once more, in smaller batches */
        room = send_all(fd, GB_LIMIT(fds), most);
    close(fd);
    return room;
}

/* ---- what is in flight ---- */

static uint64_t count_of(const struct gb_flight *flight)
{
    return flight->charge.amounts[GB_STOCK_FLIGHT];
}

static void uncharge(struct gb_flight *flight)
{
    gb_charge_set(&flight->charge, GB_STOCK_FLIGHT, 0);
    gb_list_remove(&flight->of_all);
}

/* Whether the peer has read everything, or will not any more. */
static bool has_landed(struct gb_flight *flight)
{
    int unread = 0;

    if (count_of(flight) == 0)
        return true;
    if (ioctl(flight->fd, SIOCOUTQ, &unread) == 0 && unread >= NOTHING_UNREAD)
        return false;
    uncharge(flight);
    return true;
}

uint64_t gb_flight_allowed(struct gb_flight *flight)
{
    uint64_t room, users, half, count;

    has_landed(flight);
    count = count_of(flight);
    users = flight->charge.user->charges[GB_STOCK_FLIGHT];
    room = gb_user_room(flight->charge.user, GB_STOCK_FLIGHT);
    half = room > count ? (room - count) / 2 : 0;
    if (half < GB_LIMIT(fds) && (users == 0 || (count == 0 && room >= GB_LIMIT(fds))))
        return GB_LIMIT(fds);
    return half;
}

void gb_flight_sent(struct gb_flights *flights, struct gb_flight *flight, unsigned count)
{
    if (count == 0)
        return;
    gb_charge_set(&flight->charge, GB_STOCK_FLIGHT, count_of(flight) + count);
    if (!gb_list_linked(&flight->of_all))
        gb_list_append(&flights->all, &flight->of_all);
}

/* ---- sessions that are grounded or linger ---- */

static void schedule_check(struct gb_flights *flights, uint64_t at)
{
    if (at < flights->check_at)
        flights->check_at = at;
}

void gb_flight_ground(struct gb_flights *flights, struct gb_flight *flight)
{
    gb_list_append(&flights->grounded, &flight->grounded);
    schedule_check(flights, gb_now_ms() + GROUNDED_MS);
    gb_log_limited(GB_LOG_WARNING, flight->charge.user->uid,
                   "descriptors wait: too many are sent and not received",
                   GB_LOG_NUMBER("uid", flight->charge.user->uid),
                   GB_LOG_NUMBER("user", flight->charge.user->charges[GB_STOCK_FLIGHT]),
                   GB_LOG_NUMBER("all", flight->charge.user->users->stocks[GB_STOCK_FLIGHT].used));
}

bool gb_flight_end(struct gb_flights *flights, struct gb_flight *flight)
{
    gb_list_remove(&flight->grounded);
    if (has_landed(flight))
        return true;
    shutdown(flight->fd, SHUT_RDWR);
    flight->lingers = true;
    flights->lingering++;
    schedule_check(flights, gb_now_ms() + LINGERING_MS);
    return false;
}

static struct gb_link *rotate(struct gb_link *list)
{
    struct gb_link *link = list->next;

    gb_list_remove(link);
    gb_list_append(list, link);
    return link;
}

static void check_flights(struct gb_flights *flights)
{
    for (unsigned i = 0; i < CHECKS && !gb_list_empty(&flights->all); i++) {
        struct gb_flight *flight = GB_CONTAINER(rotate(&flights->all), struct gb_flight, of_all);

        if (!has_landed(flight) || !flight->lingers)
            continue;
        flights->lingering--;
        flights->landed(flight);
    }
}

static void try_grounded(struct gb_flights *flights)
{
    for (unsigned i = 0, tries = 0;
         i < CHECKS && tries < TRIES && !gb_list_empty(&flights->grounded); i++) {
        struct gb_flight *flight =
            GB_CONTAINER(rotate(&flights->grounded), struct gb_flight, grounded);

        if (gb_flight_allowed(flight) == 0)
            continue;
        tries++;
        flights->resend(flight);
    }
}

void gb_flights_check(struct gb_flights *flights, uint64_t now_ms)
{
    if (now_ms < flights->check_at)
        return;
    flights->check_at = UINT64_MAX;
    check_flights(flights);
    try_grounded(flights);
    if (!gb_list_empty(&flights->grounded))
        schedule_check(flights, now_ms + GROUNDED_MS);
    else if (flights->lingering > 0)
        schedule_check(flights, now_ms + LINGERING_MS);
}

void gb_flights_end(struct gb_flights *flights)
{
    while (!gb_list_empty(&flights->all)) {
        struct gb_flight *flight = GB_CONTAINER(flights->all.next, struct gb_flight, of_all);

        uncharge(flight);
        flights->landed(flight);
    }
    flights->lingering = 0;
}
