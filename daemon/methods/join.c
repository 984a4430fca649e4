/* join: the holder of a lease takes part in a stream. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failure.h"
#include "daemon/methods/live.h"
#include "daemon/objects/stream.h"
#include "daemon/objects/text.h"

#define LAYOUT_MAX 4096u /* bytes of text: that of an array is shorter */

struct join_params {
    uint64_t lease, hold, lag, since;
};

static const struct gb_field join_fields[] = {
    GB_FIELD(struct join_params, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, GB_LIMIT(integer)),
    GB_FIELD(struct join_params, hold, GB_FIELD_UINT, 0, 1, GB_STREAM_SLOTS),
    GB_FIELD(struct join_params, lag, GB_FIELD_UINT, 0, 0, GB_STREAM_SLOTS),
    GB_FIELD(struct join_params, since, GB_FIELD_UINT, 0, 0, UINT32_MAX),
};

enum { HAS_SINCE = 1 << 3 }; /* among the fields that are present */

/* How many slots the object has: the extent of its first axis. */
static int read_slots(struct gb_call *call, const struct gb_object *object, unsigned *slots)
{
    const struct gb_string name = {object->name, object->name_length};
    struct gb_layout layout;
    size_t length;
    char *text = gb_object_copy_layout(object, call->pool, &length);

    if (!text)
        return gb_call_no_memory(call);
    int r = length > LAYOUT_MAX ? GPUBUF_E_UNSUPPORTED
                                : gb_layout_parse(text, length, GB_PARAM("lease"), call->pool,
                                                  &layout, &call->error);
    if (r == GPUBUF_E_NO_MEMORY)
        return r;
    if (r < 0 || layout.kind != GB_KIND_ARRAY || layout.ndim < 1 || layout.shape[0] < 2 ||
        layout.shape[0] > GB_STREAM_SLOTS)
        return gb_call_fail_name(call, GPUBUF_E_UNSUPPORTED, &name,
                                 "\"%s\" is no array of 2 to %u slots, as a stream is",
                                 object->name, GB_STREAM_SLOTS);
    *slots = (unsigned)layout.shape[0];
    return 0;
}

/* Adds a descriptor to the answer, by which the page can be written or not. Returns its place. */
static int add_page(struct gb_call *call, int fd, bool write)
{
    char path[48];
    int copy;

    if (gb_user_may_charge(call->session->user, GB_STOCK_OPEN, call->reply_fd_count + 1,
                           &call->error) < 0)
        return call->error.code;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    copy = write ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (copy < 0)
        return gb_fail_call(&call->error, "a page of a stream cannot be opened");
    call->reply_fds[call->reply_fd_count++] = copy;
    return (int)call->reply_fd_count - 1;
}

/* The reader that has joined first after that epoch; NULL: none has. */
static const struct gb_part *next_reader(const struct gb_stream *stream, uint32_t since)
{
    const struct gb_part *next = NULL;

    for (unsigned i = 0; i < GB_STREAM_READERS; i++) {
        const struct gb_part *part = stream->readers[i] ? stream->readers[i]->part : NULL;

        if (part && part->join_number > since && (!next || part->join_number < next->join_number))
            next = part;
    }
    return next;
}

/* Pages of others that an answer brings, by the places of their descriptors. */
struct others {
    int readers[GB_STREAM_PAGES_AT_ONCE], fds[GB_STREAM_PAGES_AT_ONCE];
    unsigned count;
    uint32_t epoch; /* up to which these are all */
};

/* Adds the claims of readers that have joined since. */
static int add_claims(struct gb_call *call, const struct gb_stream *stream, uint32_t since,
                      struct others *others)
{
    const struct gb_part *part = next_reader(stream, since);

    for (; part && others->count < GB_STREAM_PAGES_AT_ONCE; part = next_reader(stream, since)) {
        int fd = add_page(call, part->page.fd, false);

        if (fd < 0)
            return fd;
        others->readers[others->count] = part->reader;
        others->fds[others->count++] = fd;
        since = part->join_number;
    }
    others->epoch = part ? since : stream->roster->epoch;
    return 0;
}

/* Adds the last writer's front, if the reader does not have it. */
static int add_front(struct gb_call *call, const struct gb_stream *stream, uint32_t since,
                     struct others *others)
{
    if (!stream->front || stream->roster->writer <= since)
        return 0;
    others->fds[0] = add_page(call, stream->front_page.fd, false);
    if (others->fds[0] < 0)
        return others->fds[0];
    others->count = 1;
    return 0;
}

static void write_joined(struct gb_call *call, const struct gb_lease *lease, bool own,
                         const struct others *others)
{
    gb_call_begin_result(call);
    gb_write_format(call->writer, "{\"writer\":%" PRIu32,
                    lease->object->live->stream->roster->writer);
    if (own)
        GB_WRITE_LITERAL(call->writer, ",\"page\":0,\"roster\":1");
    if (!lease->write)
        gb_write_format(call->writer, ",\"reader\":%d", lease->part->reader);
    if (!lease->write && others->count > 0)
        gb_write_format(call->writer, ",\"front\":%d", others->fds[0]);
    if (lease->write)
        GB_WRITE_LITERAL(call->writer, ",\"claims\":[");
    for (unsigned i = 0; lease->write && i < others->count; i++)
        gb_write_format(call->writer, "%s{\"reader\":%d,\"fd\":%d}", i > 0 ? "," : "",
                        others->readers[i], others->fds[i]);
    if (lease->write)
        gb_write_format(call->writer, "],\"epoch\":%" PRIu32, others->epoch);
    gb_write_char(call->writer, '}');
}

static int check_lease(struct gb_call *call, const struct gb_lease *lease)
{
    if (!gb_object_is_live(lease->object) || (lease->write && !lease->exclusive))
        return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                       "lease %" PRIu64 " is not on a live object, or for writing it beside others",
                       lease->id);
    if (lease->parked_ms)
        return gb_fail(&call->error, GPUBUF_E_BUSY,
                       "lease %" PRIu64 " is parked: open the object by it, and join by the lease "
                       "that you get",
                       lease->id);
    return 0;
}

static int begin_part(struct gb_call *call, struct gb_lease *lease)
{
    const struct join_params *params = call->message->params;
    unsigned slots = 0;
    int r = read_slots(call, lease->object, &slots);

    if (r == 0)
        r = gb_live_know_process(call);
    if (r == 0)
        r = gb_stream_join(lease, slots, params->hold ? (unsigned)params->hold : 1,
                           (unsigned)params->lag, &call->error);
    if (r == 0)
        gb_lease_uncache(&call->server->registry, lease, gb_now_ms());
    return r;
}

static int handle_join(struct gb_call *call, const void *p)
{
    const struct join_params *params = p;
    struct others others = {.count = 0};
    struct gb_lease *lease;
    int r = gb_call_lease(call, params->lease, &lease);

    if (r == 0)
        r = check_lease(call, lease);
    if (r < 0)
        return r;
    bool joins = !lease->part, own = joins || !(call->message->present & HAS_SINCE);
    r = joins ? begin_part(call, lease) : 0;
    if (r < 0)
        return r;
    const struct gb_stream *stream = lease->object->live->stream;
    if (own)
        r = add_page(call, lease->write ? stream->front_page.fd : lease->part->page.fd, true);
    if (r >= 0 && own)
        r = add_page(call, stream->roster_page.fd, false);
    if (r >= 0)
        r = lease->write ? add_claims(call, stream, (uint32_t)params->since, &others)
                         : add_front(call, stream, (uint32_t)params->since, &others);
    if (r < 0 && joins)
        gb_stream_leave(lease);
    if (r < 0)
        return r;
    write_joined(call, lease, own, &others);
    return GB_DONE;
}

const struct gb_method gb_method_join = {
    GB_METHOD_ROW("join", GB_METHOD_KEEPS, join_fields, handle_join, struct join_params)};
