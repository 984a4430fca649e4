#include "client/lib/session/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/lib/base/clock.h"
#include "client/lib/objects/cached.h"
#include "client/lib/objects/order.h"
#include "client/lib/objects/provide.h"
#include "client/lib/objects/watch.h"
#include "client/lib/session/hello.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/fork.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/loop.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/request.h"

#define PAUSE_MAX_MS 100      /* between two attempts to connect */
#define REFUSED_PAUSE_MS 1000 /* if the daemon refuses the session: it would have to log each */
#define GREETING_MS 5000      /* for the answer to hello */

struct gb_resumption {
    int64_t started;
    int64_t next; /* when to try again; while greeting, the deadline for the answer */
    unsigned attempts;
    uint64_t session; /* that has ended */
    struct gb_error why;
    struct gb_client_lease **asked; /* for in the hello under way; NULL where the lease has ended
                                  since */
    size_t asked_count;
    uint64_t *unwanted; /* leases granted for those */
    size_t unwanted_count, unwanted_capacity;
};

/* ---- the end, and the beginning ---- */

int gb_resume_prepare(struct gpubuf_client *client)
{
    client->resumption = calloc(1, sizeof(*client->resumption));
    return client->resumption ? 0 : GPUBUF_E_NO_MEMORY;
}

static void forget_asked(struct gb_resumption *resumption)
{
    for (size_t i = 0; i < resumption->asked_count; i++) {
        if (resumption->asked[i])
            resumption->asked[i]->resuming.asked = NULL;
    }
    free(resumption->asked);
    resumption->asked = NULL;
    resumption->asked_count = 0;
}

void gb_resume_end(struct gpubuf_client *client)
{
    struct gb_resumption *resumption = client->resumption;

    if (!resumption)
        return;
    forget_asked(resumption);
    free(resumption->unwanted);
    free(resumption);
    client->resumption = NULL;
    client->link = GB_LINK_UP;
}

/* Ends the broken connection: the link is down. */
static void disconnect(struct gpubuf_client *client)
{
    client->link = GB_LINK_DOWN;
    client->flush.link_watched = false;
    (void)shutdown(client->conn.fd, SHUT_RDWR);
    gb_loop_watch(client, -1);
    gb_conn_reset(&client->conn);
    client->input_part = 0;
    client->end.write_failed = false;
    client->end.reason.code = 0;
}

/* The connection broke: forgets the notices about its leases, and loses the objects not sealed. */
static void break_leases(struct gpubuf_client *client)
{
    client->releases.count = 0;
    client->imports.unmap_count = 0;
    for (struct gb_client_lease *lease = client->leases; lease; lease = lease->next) {
        int state = atomic_load(&lease->state);
        lease->resuming.granted = false;
        lease->resuming.asked = NULL;
        if (state == GB_LEASE_OPEN || state == GB_LEASE_SEALING) {
            atomic_store(&lease->state, GB_LEASE_STALE);
            gb_client_lease_stray(lease);
        }
    }
}

/* The new connection has failed, too. */
static void try_again(struct gpubuf_client *client, const struct gb_error *why)
{
    struct gb_resumption *resumption = client->resumption;
    unsigned doubled = resumption->attempts < 7 ? resumption->attempts : 7;
    int pause = 1 << doubled;

    if (client->link == GB_LINK_GREETING) {
        disconnect(client);
        gb_request_break_all(client);
        forget_asked(resumption);
        resumption->unwanted_count = 0;
        break_leases(client);
    }
    resumption->why = *why;
    resumption->attempts++;
    if (why->code == GPUBUF_E_LIMIT)
        pause = REFUSED_PAUSE_MS;
    else if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    resumption->next = gb_now_ms() + pause;
}

void gb_resume_break(struct gpubuf_client *client, const struct gb_error *why)
{
    if (client->link != GB_LINK_UP) {
        try_again(client, why);
        return;
    }
    if (client->end.lost.code || !client->resumption || client->end.farewell.code) {
        gb_client_lose(client, why);
        return;
    }
    client->resumption->started = client->resumption->next = gb_now_ms();
    client->resumption->attempts = 0;
    client->resumption->session = atomic_load(&client->session);
    client->resumption->why = *why;
    disconnect(client);
    gb_imports_hold(&client->imports); /* until the daemon has told which of them count */
    gb_cached_forget(client);
    gb_request_break_all(client);
    break_leases(client);
    gb_watcher_break(client);
    gb_order_break(client);
    (void)gb_flusher_engage(client);
    gb_loop_wake(client);
    gb_client_changed(client);
}

/* ---- hello ---- */

struct greeting {
    struct gb_request base;
};

static void greeting_free(struct gb_request *request)
{
    free(request);
}

static int greeting_reply(struct gb_request *request, const struct gb_reply *reply,
                          struct gb_error *error);

/* Nobody waits for this request: it counts as canceled from the start. */
static const struct gb_request_type greeting_type = {
    .reply = greeting_reply,
    .free = greeting_free,
};

/* Counts the leases that are still to be asked for. */
static size_t count_pending(const struct gpubuf_client *client)
{
    size_t count = 0;

    for (const struct gb_client_lease *lease = client->leases; lease; lease = lease->next)
        count += atomic_load(&lease->state) == GB_LEASE_SEALED && !lease->resuming.granted;
    return count;
}

static int find_first(struct gb_buffer *buffer, void *arg)
{
    const struct gb_buffer **first = arg;

    if (!*first && buffer->bytes > 0)
        *first = buffer;
    return 0;
}

static void write_lease(struct gb_writer *writer, struct gb_client_lease *lease)
{
    const struct gb_buffer *first = NULL;

    (void)gb_layout_each(&lease->layout, find_first, (void *)&first);
    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, lease->name);
    gb_write_format(writer, ",\"version\":%" PRIu64, atomic_load(&lease->version));
    if (lease->parked)
        GB_WRITE_LITERAL(writer, ",\"parked\":true");
    else if (first)
        gb_write_format(writer, ",\"segment\":%" PRIu64 ",\"offset\":%" PRIu64,
                        lease->segments[first->segment].import->segment, first->offset);
    if (lease->access.live && lease->access.writable)
        GB_WRITE_LITERAL(writer, ",\"write\":true");
    if (lease->access.reader)
        gb_write_format(writer, ",\"reader\":%u", lease->access.reader - 1);
    gb_write_char(writer, '}');
}

static void write_leases(struct gpubuf_client *client, struct gb_writer *writer, size_t pending)
{
    struct gb_resumption *resumption = client->resumption;
    size_t bound = client->daemon.request_bytes_max - 6 * (GB_LIMIT(name_bytes) + 1) - 128;

    GB_WRITE_LITERAL(writer, ",\"resume\":{\"instance\":");
    gb_write_cstring(writer, client->daemon.instance);
    GB_WRITE_LITERAL(writer, ",\"objects\":[");
    for (struct gb_client_lease *lease = client->leases;
         lease && writer->length < bound && resumption->asked_count < client->daemon.names_max;
         lease = lease->next) {
        if (atomic_load(&lease->state) != GB_LEASE_SEALED || lease->resuming.granted)
            continue;
        if (resumption->asked_count)
            gb_write_char(writer, ',');
        write_lease(writer, lease);
        lease->resuming.asked = &resumption->asked[resumption->asked_count++];
        *lease->resuming.asked = lease;
    }
    gb_write_char(writer, ']');
    /* Leases that it does not ask for, since an answer was lost, are to end. */
    if (client->lingers && resumption->asked_count == pending)
        gb_write_format(writer, ",\"session\":%" PRIu64, resumption->session);
    gb_write_char(writer, '}');
}

static void send_hello(struct gpubuf_client *client)
{
    struct gb_resumption *resumption = client->resumption;
    struct gb_error error = {.code = GPUBUF_E_NO_MEMORY, .message = "out of memory"};
    size_t pending = count_pending(client);
    struct greeting *greeting = calloc(1, sizeof(*greeting));

    forget_asked(resumption);
    resumption->asked = calloc(pending + 1, sizeof(struct gb_client_lease *));
    if (!greeting || !resumption->asked) {
        free(greeting);
        gb_client_lose(client, &error);
        return;
    }
    greeting->base.type = &greeting_type;
    greeting->base.canceled = true;
    greeting->base.once = true;
    struct gb_writer *writer = gb_request_begin(client, &greeting->base, "hello", 0);
    gb_write_hello(writer, client->name);
    if (pending || client->lingers)
        write_leases(client, writer, pending);
    gb_write_char(writer, '}');
    resumption->next = gb_now_ms() + GREETING_MS;
    if (gb_request_send(client, &greeting->base, NULL, 0, GB_RELEASES_LAST, &error) < 0) {
        free(greeting);
        gb_client_lose(client, &error);
    }
}

/* ---- what the daemon says ---- */

static int note_unwanted(struct gb_resumption *resumption, uint64_t lease)
{
    if (resumption->unwanted_count == resumption->unwanted_capacity) {
        size_t capacity = resumption->unwanted_capacity ? resumption->unwanted_capacity * 2 : 16;
        uint64_t *unwanted = realloc(resumption->unwanted, capacity * sizeof(*unwanted));
        if (!unwanted)
            return GPUBUF_E_NO_MEMORY;
        resumption->unwanted = unwanted;
        resumption->unwanted_capacity = capacity;
    }
    resumption->unwanted[resumption->unwanted_count++] = lease;
    return 0;
}

/* The next connection may give the number to another lease; and the daemon, if it continues, the
   memory to another process. */
static void lose_lease(struct gb_client_lease *lease, bool same_instance)
{
    lease->id = 0;
    atomic_store(&lease->state, GB_LEASE_STALE);
    if (same_instance)
        gb_client_lease_lose(lease);
}

/* One of the leases asked for: its new number, or null. */
static int take_lease(struct gb_resumption *resumption, struct gb_client_lease *lease,
                      struct gb_json value, bool same_instance, const struct gb_path *path,
                      struct gb_error *error)
{
    uint64_t id = 0;
    bool granted = gb_json_type(value) != GB_JSON_NULL;

    if (granted && gb_json_uint(value, 0, GB_LIMIT(integer), path, &id, error) < 0)
        return GPUBUF_E_PROTOCOL;
    if (!lease)
        return granted ? note_unwanted(resumption, id) : 0;
    lease->resuming.asked = NULL;
    if (granted) {
        lease->id = id;
        lease->resuming.granted = true;
    } else {
        lose_lease(lease, same_instance);
    }
    return 0;
}

static int take_leases(struct gb_resumption *resumption, struct gb_json resumed, bool same_instance,
                       struct gb_error *error)
{
    struct gb_path result = {.key = "result"}, member = {.up = &result, .key = "resumed"};
    struct gb_path path = {.up = &member};
    struct gb_json_walk walk = gb_json_walk(resumed);
    struct gb_json key, item;
    size_t count = 0;
    int r = 0;

    while (r == 0 && resumed.text && gb_json_next(&walk, &key, &item)) {
        path.index = count;
        if (count == resumption->asked_count)
            return gb_fail(error, GPUBUF_E_PROTOCOL, "more leases than were asked for");
        r = take_lease(resumption, resumption->asked[count++], item, same_instance, &path, error);
    }
    if (r == GPUBUF_E_NO_MEMORY)
        return gb_fail(error, r, "out of memory");
    if (r == 0 && count < resumption->asked_count)
        r = gb_fail(error, GPUBUF_E_PROTOCOL, "fewer leases than were asked for");
    return r < 0 ? error->code = r : 0;
}

/* The daemon counts the segments of the leases that it granted as mapped. */
static void settle_imports(struct gpubuf_client *client, bool same_instance)
{
    for (struct gb_client_lease *lease = client->leases; lease; lease = lease->next) {
        for (size_t i = 0; lease->resuming.granted && i < lease->segment_count; i++)
            lease->segments[i].import->counted = true;
        lease->resuming.granted = false;
    }
    gb_imports_resume(&client->imports, same_instance);
    gb_imports_unhold(&client->imports);
}

static void finish(struct gpubuf_client *client, bool same_instance)
{
    struct gb_resumption *resumption = client->resumption;
    struct gb_error error;

    client->link = GB_LINK_UP;
    for (size_t i = 0; i < resumption->unwanted_count; i++)
        gb_push_release(client, resumption->unwanted[i]);
    resumption->unwanted_count = 0;
    forget_asked(resumption);
    settle_imports(client, same_instance);
    gb_queue_releases(client);
    int r = gb_watcher_resume(client, &error);
    if (r == 0)
        r = gb_provide_resume(client, &error);
    if (r == 0)
        r = gb_request_resume_all(client, &error);
    if (r < 0)
        gb_client_doom(client, &error);
    gb_flush(client);
    if (client->flush.is_watched)
        gb_flusher_watch(client);
    gb_loop_wake(client);
    gb_client_changed(client);
}

static int greeting_reply(struct gb_request *request, const struct gb_reply *reply,
                          struct gb_error *error)
{
    struct gpubuf_client *client = request->client;
    struct gb_resumption *resumption = client->resumption;
    char before[GB_INSTANCE_BYTES];
    struct gb_json resumed = {NULL, 0};

    if (reply->refused) {
        /* A limit may pass; another version of the protocol will not. */
        if (reply->refused->code == GPUBUF_E_UNSUPPORTED)
            gb_client_lose(client, reply->refused);
        else
            gb_client_doom(client, reply->refused);
        return reply->refused->code;
    }
    memcpy(before, client->daemon.instance, sizeof(before));
    int r = gb_read_welcome(client, reply->result, &resumed, error);
    bool same = strcmp(before, client->daemon.instance) == 0;
    if (r == 0)
        r = take_leases(resumption, resumed, same, error);
    if (r < 0) {
        if (!same) /* the next attempt asks for the leases of the old instance again */
            memcpy(client->daemon.instance, before, sizeof(before));
        gb_client_lose(client, error);
        return r;
    }
    if (same && count_pending(client) > 0) {
        send_hello(client);
        return 0;
    }
    for (struct gb_client_lease *lease = client->leases; lease; lease = lease->next) {
        if (atomic_load(&lease->state) == GB_LEASE_SEALED && !lease->resuming.granted)
            lose_lease(lease, same);
    }
    finish(client, same);
    return 0;
}

/* ---- the steps ---- */

static void give_up(struct gpubuf_client *client)
{
    struct gb_error why;
    bool memory = client->resumption->why.code == GPUBUF_E_NO_MEMORY;

    (void)gb_fail(&why, memory ? GPUBUF_E_NO_MEMORY : GPUBUF_E_CLOSED,
                  "the connection to the daemon broke, and could not be made anew within %" PRId64
                  " ms: %s",
                  gb_now_ms() - client->resumption->started, client->resumption->why.message);
    client->link = GB_LINK_DOWN;
    gb_client_lose(client, &why);
}

static void connect_anew(struct gpubuf_client *client)
{
    struct gb_error why;
    char reason[128];
    int error = gb_fork_reconnect(client);

    if (error) {
        (void)gb_fail(&why, GPUBUF_E_CLOSED, "cannot connect to the daemon at %s: %s", client->path,
                      strerror_r(error, reason, sizeof(reason)));
        try_again(client, &why);
        if (client->daemon.while_listening && (error == ECONNREFUSED || error == ENOENT))
            give_up(client);
        return;
    }
    client->link = GB_LINK_GREETING;
    gb_loop_watch(client, client->conn.fd);
    send_hello(client);
}

/* Does what is due and can be done without waiting. */
static void step(struct gpubuf_client *client)
{
    int64_t now = gb_now_ms();

    if (client->daemon.resume_ms >= 0 &&
        now >= client->resumption->started + client->daemon.resume_ms) {
        give_up(client);
    } else if (now >= client->resumption->next) {
        struct gb_error why;
        (void)gb_fail(&why, GPUBUF_E_CLOSED, "the daemon at %s has not answered in time",
                      client->path);
        if (client->link == GB_LINK_GREETING)
            try_again(client, &why);
        else
            connect_anew(client);
    }
}

int gb_resume_mend(struct gpubuf_client *client, int timeout_ms)
{
    if (client->link != GB_LINK_UP)
        step(client);
    if (client->link == GB_LINK_UP)
        return timeout_ms;
    int64_t until = client->resumption->next;
    if (client->daemon.resume_ms >= 0 &&
        client->resumption->started + client->daemon.resume_ms < until)
        until = client->resumption->started + client->daemon.resume_ms;
    int64_t pause = until - gb_now_ms();
    pause = pause < 1 ? 1 : pause;
    return timeout_ms >= 0 && timeout_ms < pause ? timeout_ms : (int)pause;
}
