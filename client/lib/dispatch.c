#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gather.h"
#include "internal.h"

#define RECEIVES_MAX 64    /* in one gpubuf_dispatch, so that it comes back even under a flood */
#define LOOK_US 30         /* how long to look for an answer before sleeping */
#define LOOK_MISSES_MAX 10 /* at most 1023 times in a row without looking */
#define RELEASES_A_MESSAGE 4096
#define BUSY_US 1000 /* a client whose last release is no older is busy */
#define HELD_MAX 512 /* how many releases are held back at most */
#define ABORT_BIT (UINT64_C(1) << 63)

/* ---- the end of a connection ---- */

void gb_client_lose(struct gpubuf_client *client, const struct gb_error *why)
{
    if (client->lost.code)
        return;
    if (client->link == GB_LINK_GREETING && why->code == GPUBUF_E_NO_MEMORY) {
        gb_client_doom(client, why);
        return;
    }
    client->lost = *why;
    gb_resume_end(client);
    atomic_store(&client->ended, true);
    /* The descriptor stays until the program disconnects, since its event loop, or another thread's
       poll, may have it. */
    (void)shutdown(client->conn.fd, SHUT_RDWR);
    client->released_count = 0;
    gb_request_end_all(client, why);
    gb_imports_abandon(&client->imports);
    gb_watch_end_all(client);
    gb_loop_wake(client);
    if (client->waiters)
        pthread_cond_broadcast(&client->changed);
}

static void lose(struct gpubuf_client *client, int code, const char *text)
{
    struct gb_error error;
    (void)gb_fail(&error, code, "%s", text);
    gb_client_lose(client, &error);
}

/* ---- sending ---- */

void gb_flush(struct gpubuf_client *client)
{
    if (client->lost.code || client->write_failed || !gb_conn_has_output(&client->conn))
        return;
    /* What the daemon wrote before it closed is worth reading (replies, the reason), so that the
       connection is lost only where reading ends. */
    if (gb_conn_flush(&client->conn) < 0)
        client->write_failed = true;
}

static bool queue_notice(struct gpubuf_client *client)
{
    gb_rpc_end(&client->notice);
    return !client->notice.failed &&
           gb_conn_queue(&client->conn, client->notice.data, client->notice.length, NULL, 0) == 0;
}

/* Begins {"…","params":{"MEMBER":[ */
static struct gb_writer *begin_notice(struct gpubuf_client *client, const char *method,
                                      const char *member)
{
    struct gb_writer *writer = &client->notice;
    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, method, 0);
    gb_write_char(writer, '{');
    gb_write_cstring(writer, member);
    GB_WRITE_LITERAL(writer, ":[");
    return writer;
}

static bool queue_numbers(struct gpubuf_client *client, const char *method, const char *member,
                          const uint64_t *numbers, size_t count)
{
    struct gb_writer *writer = begin_notice(client, method, member);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        gb_write_uint(writer, numbers[i]);
    }
    GB_WRITE_LITERAL(writer, "]}");
    return queue_notice(client);
}

static bool queue_abort(struct gpubuf_client *client, uint64_t lease)
{
    struct gb_writer *writer = &client->notice;
    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "abort", 0);
    gb_write_format(writer, "{\"lease\":%llu}", (unsigned long long)lease);
    return queue_notice(client);
}

/* Takes `count` numbers off the front of an array. */
static void drop_front(uint64_t *numbers, size_t *total, size_t count)
{
    *total -= count;
    memmove(numbers, numbers + count, *total * sizeof(*numbers));
}

/* What cannot be queued now, for want of memory, is with the next message. */
static void queue_leases(struct gpubuf_client *client)
{
    while (client->released_count > 0) {
        size_t count = 0;
        if (client->released[0] & ABORT_BIT) {
            if (!queue_abort(client, client->released[0] & ~ABORT_BIT))
                return;
            count = 1;
        } else {
            while (count < client->released_count && count < RELEASES_A_MESSAGE &&
                   !(client->released[count] & ABORT_BIT))
                count++;
            if (!queue_numbers(client, "release", "leases", client->released, count))
                return;
        }
        drop_front(client->released, &client->released_count, count);
    }
}

bool gb_queue_unmaps(struct gpubuf_client *client)
{
    struct gb_imports *imports = &client->imports;
    if (client->lost.code || client->write_failed || client->link != GB_LINK_UP)
        return true;
    while (imports->unmap_count > 0) {
        size_t count = imports->unmap_count;
        if (count > RELEASES_A_MESSAGE)
            count = RELEASES_A_MESSAGE;
        if (!queue_numbers(client, "unmap", "segments", imports->unmap, count))
            return false;
        drop_front(imports->unmap, &imports->unmap_count, count);
    }
    return true;
}

void gb_queue_releases(struct gpubuf_client *client)
{
    client->overdue = false;
    if (client->lost.code || client->write_failed || client->link != GB_LINK_UP)
        return;
    queue_leases(client);
    (void)gb_queue_unmaps(client);
}

int gb_reserve_releases(struct gpubuf_client *client, size_t more)
{
    size_t wanted = client->lease_count + client->released_count + more;
    if (wanted <= client->released_capacity)
        return 0;
    size_t capacity = client->released_capacity ? client->released_capacity : 64;
    while (capacity < wanted)
        capacity *= 2;
    uint64_t *released = realloc(client->released, capacity * sizeof(*released));
    if (!released)
        return GPUBUF_E_NO_MEMORY;
    client->released = released;
    client->released_capacity = capacity;
    return 0;
}

void gb_push_release(struct gpubuf_client *client, uint64_t lease, bool abort)
{
    if (client->lost.code || client->link != GB_LINK_UP)
        return;
    assert(client->released_count < client->released_capacity);
    client->released[client->released_count++] = lease | (abort ? ABORT_BIT : 0);
}

void gb_send_releases(struct gpubuf_client *client)
{
    if (client->delivering && gb_in_callback(client))
        return;
    int64_t now = gb_now_us();
    bool busy = now - client->last_release_us < BUSY_US;
    client->last_release_us = now;
    if (busy && client->released_count < HELD_MAX && gb_flusher_engage(client))
        return;
    gb_queue_releases(client);
    gb_flush(client);
    if (gb_conn_has_output(&client->conn) && !client->write_failed) /* the socket is full */
        (void)gb_flusher_engage(client);
}

/* ---- receiving ---- */

static void handle_reply(struct gpubuf_client *client, const struct gb_rpc_message *message,
                         int *fds)
{
    struct gb_request *request = gb_request_find(client, message->id);
    if (!request || request->ended) {
        lose(client, GPUBUF_E_PROTOCOL, "the daemon answered a request that was not made");
        return;
    }

    struct gb_error error = {.code = 0}, refused;
    struct gb_reply reply = {
        .result = message->result, .fds = fds, .fd_count = (unsigned)message->fds};
    int status = 0;
    if (message->error.text) {
        status = gb_rpc_read_error(message->error, &client->pool, &refused);
        if (status >= 0)
            status =
                gb_fail(&refused, GPUBUF_E_PROTOCOL, "the daemon sent an error without a code");
        refused.code = status;
        reply.refused = &refused;
        reply.error = message->error;
        error = refused;
    }

    request->again = false;
    if (request->type->reply && status != GPUBUF_E_PROTOCOL)
        status = request->type->reply(request, &reply, &error);
    if (client->lost.code || request->again)
        return;
    gb_request_end(request, status, &error);
    if (status == GPUBUF_E_PROTOCOL)
        gb_client_lose(client, &error);
}

static void handle_retire(struct gpubuf_client *client, struct gb_json params)
{
    struct gb_json segments = {NULL, 0};
    static const struct gb_field fields[] = {
        {.name = "segments", .type = GB_FIELD_ARRAY, .flags = GB_FIELD_REQUIRED},
    };
    struct gb_path path = {.key = "params"};
    struct gb_error error;
    if (gb_json_read(params, fields, 1, GB_UNKNOWN_IGNORE, &path, &client->pool, &segments, NULL,
                     &error) < 0) {
        lose(client, GPUBUF_E_PROTOCOL, "the daemon sent a malformed segments.retire");
        return;
    }

    struct gb_json_walk walk = gb_json_walk(segments, NULL);
    struct gb_json key, item;
    while (gb_json_next(&walk, &key, &item)) {
        uint64_t segment;
        if (gb_json_uint(item, 0, GB_LIMIT(integer), &path, &segment, &error) == 0)
            gb_imports_retire(&client->imports, segment);
    }
    gb_queue_releases(client);
    gb_flush(client);
}

/* The connection ends when the daemon closes it; until then it may still answer. */
static void handle_shutdown(struct gpubuf_client *client, struct gb_json params)
{
    struct farewell {
        struct gb_string reason;
        bool resume;
    } farewell = {{NULL, 0}, false};
    static const struct gb_field fields[] = {
        GB_FIELD(struct farewell, reason, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct farewell, resume, GB_FIELD_BOOL, 0, 0, 0),
    };
    if (gb_json_read(params, fields, 2, GB_UNKNOWN_IGNORE, NULL, &client->pool, &farewell, NULL,
                     NULL) < 0 ||
        !farewell.reason.text)
        farewell.reason.text = "no reason given";
    if (!farewell.resume)
        (void)gb_fail(&client->farewell, GPUBUF_E_CLOSED, "%s", farewell.reason.text);
}

static void handle_notification(struct gpubuf_client *client, const struct gb_rpc_message *message)
{
    struct gb_json params = message->params;
    if (!message->method.text || !params.text || gb_json_type(params) != GB_JSON_OBJECT)
        return;
    if (strcmp(message->method.text, "event") == 0)
        gb_watch_event(client, params);
    else if (strcmp(message->method.text, "segments.retire") == 0)
        handle_retire(client, params);
    else if (strcmp(message->method.text, "shutdown") == 0)
        handle_shutdown(client, params);
    /* Others may come with later versions. */
}

static void handle_line(struct gpubuf_client *client, const char *line, size_t length)
{
    struct gb_rpc_message message;
    struct gb_error error;
    int fds[GB_LIMIT(fds)];

    gb_pool_reset(&client->pool);
    if (gb_rpc_read_message(line, length, &client->pool, &message, &error) < 0) {
        if (error.code != GPUBUF_E_NO_MEMORY)
            error.code = GPUBUF_E_PROTOCOL;
        gb_client_lose(client, &error);
        return;
    }
    if (message.fds > GB_LIMIT(fds) ||
        gb_frame_take_fds(&client->conn.in, fds, (unsigned)message.fds) < 0) {
        lose(client, GPUBUF_E_PROTOCOL, "the daemon sent fewer descriptors than it said");
        return;
    }

    if (message.id)
        handle_reply(client, &message, fds);
    else
        handle_notification(client, &message);
    for (unsigned i = 0; i < message.fds; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/*
 * Whether what has just been received is one more part of a long line, which then stays where it is:
 * an answer about a thousand objects is some hundred KiB, comes in several parts, and is handled in
 * the receive buffer as a whole, without being put together elsewhere.
 */
static bool keep_part(struct gpubuf_client *client, size_t received)
{
    const char *part = client->input + client->input_kept;
    if (gb_frame_is_partial(&client->conn.in) || memchr(part, '\n', received) ||
        client->input_kept + received == GB_INPUT_BYTES)
        return false;
    client->input_kept += received;
    return true;
}

/* Receives once; only the leader may without the lock. */
static ssize_t receive(struct gpubuf_client *client)
{
    return gb_conn_receive(&client->conn, client->input + client->input_kept,
                           GB_INPUT_BYTES - client->input_kept);
}

/* Handles what was received, or why nothing was. Returns the number of messages, or GPUBUF_E_AGAIN if
   nothing is there. */
static int handle_received(struct gpubuf_client *client, ssize_t received)
{
    struct gb_conn *conn = &client->conn;
    if (received == GPUBUF_E_AGAIN)
        return GPUBUF_E_AGAIN;
    if (client->doomed.code) {
        struct gb_error why = client->doomed;
        gb_client_break(client, &why);
        return 0;
    }
    if (received == 0) {
        struct gb_error error;
        (void)gb_fail(&error, GPUBUF_E_CLOSED, "the daemon has closed the connection%s%s",
                      client->farewell.code ? ": " : "", client->farewell.message);
        gb_client_break(client, &error);
        return 0;
    }
    if (received == GPUBUF_E_PROTOCOL || received == GPUBUF_E_LIMIT) {
        lose(client, GPUBUF_E_PROTOCOL, "descriptors from the daemon were lost or too many");
        return 0;
    }
    if (received < 0) {
        struct gb_error error;
        (void)gb_fail_errno(&error, "the connection to the daemon failed");
        error.code = received == GPUBUF_E_NO_MEMORY ? GPUBUF_E_NO_MEMORY : GPUBUF_E_CLOSED;
        gb_client_lose(client, &error);
        return 0;
    }

    if (keep_part(client, (size_t)received))
        return 0;

    int handled = 0, r;
    const char *line;
    size_t length;
    gb_frame_begin(&conn->in, client->input, client->input_kept + (size_t)received);
    client->input_kept = 0;
    while ((r = gb_frame_next(&conn->in, &line, &length)) == 1 && !client->lost.code) {
        handle_line(client, line, length);
        handled++;
        if (client->doomed.code)
            return handled;
    }
    if (r == 0)
        r = gb_frame_finish(&conn->in);
    if (r == GPUBUF_E_NO_MEMORY)
        lose(client, GPUBUF_E_NO_MEMORY, "out of memory");
    else if (r < 0)
        lose(client, GPUBUF_E_PROTOCOL, "the daemon sent a line that is too long");
    /* Descriptors come with the first byte of their message, so that none can be left over. */
    else if (conn->in.fd_count > 0 && !gb_frame_is_partial(&conn->in))
        lose(client, GPUBUF_E_PROTOCOL, "the daemon sent more descriptors than it said");
    return handled;
}

int gb_receive(struct gpubuf_client *client, bool all)
{
    int handled = 0;
    for (int i = 0; i < (all ? RECEIVES_MAX : 1) && !client->lost.code; i++) {
        if (client->link == GB_LINK_DOWN)
            break;
        int r = handle_received(client, receive(client));
        if (r == GPUBUF_E_AGAIN)
            break;
        handled += r;
        if (client->conn.drained)
            break; /* what comes later is told by the next poll */
    }
    return handled;
}

/*
 * Looks for an answer again and again for a few microseconds, letting others run in between. Most
 * answers come within the time that falling asleep and being woken would take, on both sides. Where
 * they do not (a long wait, a busy machine) it is tried more and more seldom. False if nothing came.
 */
static bool lead_looking(struct gpubuf_client *client)
{
    if (client->look_pause > 0) {
        client->look_pause--;
        return false;
    }
    pthread_mutex_unlock(&client->lock);
    int64_t until = gb_now_us() + LOOK_US;
    ssize_t received;
    while ((received = receive(client)) == GPUBUF_E_AGAIN && gb_now_us() < until)
        (void)sched_yield();
    pthread_mutex_lock(&client->lock);
    if (received == GPUBUF_E_AGAIN) {
        client->look_misses += client->look_misses < LOOK_MISSES_MAX;
        client->look_pause = (1u << client->look_misses) - 1;
        return false;
    }
    client->look_misses = 0;
    if (!client->lost.code)
        (void)handle_received(client, received);
    return true;
}

/* Sleeps until something can be received or sent, for at most so long; then does it. */
static void lead_sleeping(struct gpubuf_client *client, int timeout_ms)
{
    struct pollfd socket = {.fd = client->conn.fd, .events = POLLIN};
    if (gb_conn_has_output(&client->conn) && !client->write_failed)
        socket.events |= POLLOUT;

    pthread_mutex_unlock(&client->lock);
    int ready = poll(&socket, 1, timeout_ms);
    pthread_mutex_lock(&client->lock);
    if (ready > 0 && !client->lost.code) {
        if (socket.revents & POLLOUT)
            gb_flush(client);
        if (socket.revents & ~POLLOUT)
            (void)gb_receive(client, false);
    }
}

/* Waits until it is time to try to connect again, or something has changed. */
static void lead_down(struct gpubuf_client *client, int timeout_ms)
{
    int64_t until = gb_now_ms() + gb_resume_pause(client, timeout_ms);
    struct timespec time = {
        .tv_sec = (time_t)(until / 1000),
        .tv_nsec = (long)(until % 1000) * 1000000,
    };
    client->waiters++;
    (void)pthread_cond_timedwait(&client->changed, &client->lock, &time);
    client->waiters--;
}

void gb_lead(struct gpubuf_client *client, int timeout_ms)
{
    if (client->link != GB_LINK_UP) {
        gb_resume_step(client);
        if (client->lost.code)
            return;
        if (client->link == GB_LINK_DOWN) {
            lead_down(client, timeout_ms);
            return;
        }
        if (client->link != GB_LINK_UP)
            timeout_ms = gb_resume_pause(client, timeout_ms);
    }
    gb_flush(client);
    client->leader = true;
    client->pollers++;
    if (gb_conn_has_output(&client->conn) || client->lost.code || !lead_looking(client))
        lead_sleeping(client, timeout_ms);
    client->pollers--;
    client->leader = false;
    if (client->waiters)
        pthread_cond_broadcast(&client->changed);
}

/* ---- callbacks ---- */

/* The clients whose callbacks the thread is inside of, innermost first. */
struct callback_frame {
    const struct gpubuf_client *client;
    const struct callback_frame *up;
};

static _Thread_local const struct callback_frame *callback_frames;

bool gb_in_callback(const struct gpubuf_client *client)
{
    for (const struct callback_frame *frame = callback_frames; frame; frame = frame->up) {
        if (frame->client == client)
            return true;
    }
    return false;
}

void gb_queue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    delivery->next = NULL;
    *client->deliveries_end = delivery;
    client->deliveries_end = &delivery->next;
}

static void unqueue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct gb_delivery **link = &client->deliveries;
    while (*link != delivery)
        link = &(*link)->next;
    *link = delivery->next;
    if (client->deliveries_end == &delivery->next)
        client->deliveries_end = link;
}

/* Runs a request's callback. The lock is let go meanwhile. */
static void run_callback(struct gb_request *request, int status, const struct gb_error *error)
{
    struct gpubuf_client *client = request->client;
    struct callback_frame frame = {client, callback_frames};
    if (status < 0)
        (void)gb_report(client, error);
    pthread_mutex_unlock(&client->lock);
    callback_frames = &frame;
    request->type->deliver(request, status);
    callback_frames = frame.up;
    pthread_mutex_lock(&client->lock);
}

static void deliver_request(struct gpubuf_client *client, struct gb_request *request)
{
    gb_request_remove(request);
    run_callback(request, request->status, &request->error);
    pthread_mutex_unlock(&client->lock);
    request->type->free(request);
    pthread_mutex_lock(&client->lock);
}

static void deliver_event(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct callback_frame frame = {client, callback_frames};
    callback_frames = &frame;
    gb_watch_deliver(client, delivery);
    callback_frames = frame.up;
}

void gb_deliver(struct gpubuf_client *client)
{
    if (client->delivering || !client->deliveries)
        return;
    client->delivering = true;
    client->delivering_by = pthread_self();
    while (client->deliveries) {
        struct gb_delivery *delivery = client->deliveries;
        unqueue_delivery(client, delivery);
        if (delivery->event)
            deliver_event(client, delivery);
        else
            deliver_request(client, (struct gb_request *)delivery);
    }
    client->delivering = false;
    /* What the callbacks released. */
    gb_queue_releases(client);
    gb_flush(client);
    if (client->waiters)
        pthread_cond_broadcast(&client->changed);
}

/* ---- the public side ---- */

void gb_gather_requests(struct gpubuf_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->gathers = true;
    pthread_mutex_unlock(&client->lock);
}

void gb_send_gathered(struct gpubuf_client *client)
{
    pthread_mutex_lock(&client->lock);
    gb_flush(client);
    pthread_mutex_unlock(&client->lock);
}

int gpubuf_dispatch(struct gpubuf_client *client)
{
    int r = gb_enter(client);
    if (r < 0)
        return r;
    gb_loop_clear(client);
    if (client->link != GB_LINK_UP && !client->leader)
        gb_resume_step(client);
    gb_queue_releases(client);
    gb_flush(client);
    /* A thread in a blocking call that leads is woken by the same input and handles it; to take it
       from under its nose would leave it polling. */
    int handled = client->leader ? 0 : gb_receive(client, true);
    gb_flush(client);
    gb_deliver(client);
    if (client->lost.code)
        handled = gb_report(client, &client->lost);
    gb_leave(client);
    return handled;
}

int gpubuf_cancel(struct gpubuf_client *client, uint64_t id)
{
    int r = gb_enter(client);
    if (r < 0)
        return r;
    struct gb_request *request = gb_request_find(client, id);
    if (!request || request->waited || request->canceled) {
        r = gb_report_text(client, GPUBUF_E_NOT_FOUND, "no such request is under way");
        gb_leave(client);
        return r;
    }

    if (request->ended) {
        unqueue_delivery(client, &request->delivery);
        if (request->type->discard)
            request->type->discard(request);
        gb_request_remove(request);
        gb_queue_releases(client);
        gb_flush(client);
    }
    /* Its reply may come, in another thread, while the callback runs. */
    request->canceled = request->held = true;
    struct gb_error why;
    (void)gb_fail(&why, GPUBUF_E_CANCELED, "the request was canceled");
    run_callback(request, why.code, &why);
    request->held = false;
    if (request->ended)
        request->type->free(request);
    gb_leave(client);
    return 0;
}
