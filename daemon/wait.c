#include "wait.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "methods.h"

/* One name that a request waits for. */
struct gb_awaited {
    struct gb_hash_link link;
    struct gb_wait *wait;
    const char *name; /* in the wait's pool */
    size_t length;
};

struct gb_wait {
    struct gb_link of_session, woken, of_device;
    struct gb_session *session;
    struct gb_device *device; /* that it waits for space or memory on; NULL: none */
    struct gb_timer timer;
    uint64_t since_ms;
    uint64_t expects_since_ms; /* that it waits for the driver, among `expecting`; 0: for space */
    struct gb_making making;
    struct gb_pool pool; /* of the message and the names */
    const char *line;
    size_t length;
    struct gb_awaited *awaited;
    size_t awaited_count; /* entered in the table */
    int fds[GB_LIMIT(fds)];
    unsigned fd_count;
};

static void time_is_up(struct gb_timer *timer)
{
    gb_methods_retry(GB_CONTAINER(timer, struct gb_wait, timer), true);
}

static int keep_names(struct gb_wait *wait, const struct gb_string *names, size_t count)
{
    struct gb_hash_table *table = &wait->session->server->waits.names;

    wait->awaited = gb_pool_calloc(&wait->pool, count, sizeof(*wait->awaited));
    if (!wait->awaited)
        return GPUBUF_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct gb_awaited *awaited = &wait->awaited[i];

        awaited->wait = wait;
        awaited->name = gb_pool_strndup(&wait->pool, names[i].text, names[i].length);
        awaited->length = names[i].length;
        if (!awaited->name ||
            !gb_hash_insert(table, &awaited->link, gb_hash_bytes(awaited->name, awaited->length)))
            return GPUBUF_E_NO_MEMORY;
        wait->awaited_count++;
    }
    return 0;
}

int gb_wait_new(struct gb_session *session, const char *line, size_t length, int *fds,
                unsigned fd_count, struct gb_device *device, const struct gb_string *names,
                size_t count, uint64_t since_ms, uint64_t until_ms, struct gb_wait **out)
{
    struct gb_wait *wait = calloc(1, sizeof(*wait));

    if (!wait)
        return GPUBUF_E_NO_MEMORY;
    wait->session = session;
    wait->since_ms = since_ms;
    wait->timer.fire = time_is_up;
    wait->line = gb_pool_strndup(&wait->pool, line, length);
    wait->length = length;
    gb_list_append(&session->waits, &wait->of_session);
    session->wait_count++;
    if (!wait->line || (names && keep_names(wait, names, count) < 0) ||
        !gb_timer_set(session->server, &wait->timer, until_ms)) {
        gb_wait_end(wait);
        return GPUBUF_E_NO_MEMORY;
    }
    wait->device = device;
    if (device)
        gb_list_append(&device->waits, &wait->of_device);
    if (fd_count > 0)
        memcpy(wait->fds, fds, fd_count * sizeof(*fds));
    wait->fd_count = fd_count;
    *out = wait;
    return 0;
}

void gb_wait_end(struct gb_wait *wait)
{
    struct gb_server *server = wait->session->server;

    for (size_t i = 0; i < wait->awaited_count; i++)
        gb_hash_remove(&server->waits.names, &wait->awaited[i].link);
    gb_timer_cancel(server, &wait->timer);
    gb_making_end(&wait->making);
    gb_list_remove(&wait->of_session);
    gb_list_remove(&wait->of_device);
    if (wait->device)
        wait->device->space_changed = true; /* for the next in line */
    gb_list_remove(&wait->woken);
    wait->session->wait_count--;
    for (unsigned i = 0; i < wait->fd_count; i++)
        if (wait->fds[i] >= 0)
            close(wait->fds[i]);
    gb_pool_end(&wait->pool);
    free(wait);
}

struct gb_session *gb_wait_session(const struct gb_wait *wait)
{
    return wait->session;
}

const char *gb_wait_line(const struct gb_wait *wait, size_t *length)
{
    *length = wait->length;
    return wait->line;
}

int *gb_wait_fds(struct gb_wait *wait, unsigned *count)
{
    *count = wait->fd_count;
    return wait->fds;
}

uint64_t gb_wait_since(const struct gb_wait *wait)
{
    return wait->since_ms;
}

/* In order of arrival: to where most come from, the end. */
static void insert_by_arrival(struct gb_link *head, struct gb_wait *wait)
{
    struct gb_link *after = head->prev;

    while (after != head &&
           GB_CONTAINER(after, struct gb_wait, of_device)->since_ms > wait->since_ms)
        after = after->prev;
    gb_list_append(after->next, &wait->of_device);
}

void gb_wait_expect(struct gb_wait *wait, uint64_t since_ms)
{
    bool moves = (wait->expects_since_ms == 0) != (since_ms == 0);

    wait->expects_since_ms = since_ms;
    if (!moves)
        return;
    gb_list_remove(&wait->of_device);
    insert_by_arrival(since_ms ? &wait->device->expecting : &wait->device->waits, wait);
}

uint64_t gb_wait_expects_since(const struct gb_wait *wait)
{
    return wait->expects_since_ms;
}

void gb_wait_until(struct gb_wait *wait, uint64_t until_ms)
{
    /* It has a place among the timers unless its time is up, and moving within takes no memory. */
    gb_timer_set(wait->session->server, &wait->timer, until_ms);
}

struct gb_making *gb_wait_making(struct gb_wait *wait)
{
    return &wait->making;
}

void gb_waits_init(struct gb_waits *waits)
{
    memset(waits, 0, sizeof(*waits));
    gb_list_init(&waits->woken);
}

void gb_waits_end(struct gb_waits *waits)
{
    gb_hash_end(&waits->names);
}

void gb_waits_name(struct gb_server *server, const struct gb_object *object)
{
    uint64_t hash;

    if (server->waits.names.count == 0)
        return;
    hash = gb_hash_bytes(object->name, object->name_length);
    for (struct gb_hash_link *link = gb_hash_first(&server->waits.names, hash); link;
         link = gb_hash_next(link)) {
        struct gb_awaited *awaited = GB_CONTAINER(link, struct gb_awaited, link);

        if (awaited->length == object->name_length &&
            memcmp(awaited->name, object->name, awaited->length) == 0 &&
            !gb_list_linked(&awaited->wait->woken))
            gb_list_append(&server->waits.woken, &awaited->wait->woken);
    }
}

/* Every one once: whose memory is there takes it. */
static void run_expecting(struct gb_device *device)
{
    struct gb_link turn;

    gb_list_init(&turn);
    while (!gb_list_empty(&device->expecting)) {
        struct gb_link *link = device->expecting.next;

        gb_list_remove(link);
        gb_list_append(&turn, link);
    }
    while (!gb_list_empty(&turn)) {
        struct gb_wait *wait = GB_CONTAINER(turn.next, struct gb_wait, of_device);

        gb_list_remove(&wait->of_device);
        gb_list_append(&device->expecting, &wait->of_device);
        gb_methods_retry(wait, false);
    }
}

/* In order of arrival: what came first gets space first, and while it waits nothing passes it. */
static void run_device(struct gb_device *device)
{
    device->space_changed = false;
    run_expecting(device);
    while (!gb_list_empty(&device->waits)) {
        struct gb_wait *first = GB_CONTAINER(device->waits.next, struct gb_wait, of_device);

        if (!gb_methods_retry(first, false))
            return;
    }
}

void gb_waits_run(struct gb_server *server)
{
    while (!gb_list_empty(&server->waits.woken)) {
        struct gb_wait *wait = GB_CONTAINER(server->waits.woken.next, struct gb_wait, woken);

        gb_list_remove(&wait->woken);
        gb_methods_retry(wait, false);
    }
    for (unsigned i = 0; i < server->device_count; i++)
        if (server->devices[i]->space_changed)
            run_device(server->devices[i]);
}

void gb_waits_end_session(struct gb_session *session)
{
    GB_LIST_EACH(&session->waits, link)
        gb_wait_end(GB_CONTAINER(link, struct gb_wait, of_session));
}
