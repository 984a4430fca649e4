/* segments and sessions: the segments of all devices, and all sessions, for the gateway's page. */
#include <inttypes.h>

#include "daemon/methods/call.h"
#include "daemon/store/store.h"

struct page_params {
    uint64_t cursor;
};

static const struct gb_field page_fields[] = {
    GB_FIELD(struct page_params, cursor, GB_FIELD_UINT, 0, 0, 0),
};

/* An answer is one page of a list. If there are more it ends with `cursor`, the id of its last
   item. A page also ends when it is this long, since the prefixes that a session provides may be
   long. */
#define PAGE_ROOM (2 * GB_LONG_BYTES)

struct page {
    struct gb_writer *writer;
    uint64_t left, last;
    bool more;
};

static struct page page_begin(struct gb_call *call, const char *what)
{
    gb_call_begin_result(call);
    GB_WRITE_UINT(call->writer, "{\"seq\":", call->server->seq);
    gb_write_format(call->writer, ",\"%s\":[", what);
    return (struct page){call->writer, GB_LIMIT(list), 0, false};
}

/* Whether the page has room for another item; if not, there are more than the page has. */
static bool page_add(struct page *page, uint64_t id)
{
    page->more = page->left == 0 || page->writer->length > PAGE_ROOM;
    if (page->more)
        return false;
    if (page->last)
        gb_write_char(page->writer, ',');
    page->left--;
    page->last = id;
    return true;
}

static int page_end(struct page *page)
{
    gb_write_char(page->writer, ']');
    if (page->more) {
        GB_WRITE_UINT(page->writer, ",\"cursor\":", page->last);
    }
    gb_write_char(page->writer, '}');
    return GB_DONE;
}

/* ---- segments ---- */

static uint64_t segment_used(const struct gb_segment *segment)
{
    return segment->block   ? gb_arena_block_used(segment->block)
           : segment->empty ? 0
                            : segment->bytes;
}

static void write_segment(struct gb_writer *writer, const struct gb_segment *segment)
{
    const char *state = segment->retiring ? "retiring" : segment->empty ? "empty" : "used";

    gb_write_format(writer,
                    "{\"id\":%" PRIu64 ",\"device\":\"%s\",\"bytes\":%" PRIu64 ",\"used\":%" PRIu64
                    ",\"state\":\"%s\",\"domain\":",
                    segment->id, segment->device->id, segment->bytes, segment_used(segment), state);
    if (segment->domain)
        gb_write_format(writer, "{\"share\":\"%s\",\"uid\":%u,\"gid\":%u,\"mode\":\"%04o\"}}",
                        segment->domain->key.share == GB_SHARE_FD ? "fd" : "ipc",
                        segment->domain->key.uid, segment->domain->key.gid,
                        segment->domain->key.mode);
    else
        GB_WRITE_LITERAL(writer, "null}");
}

static unsigned device_index(const struct gb_server *server, const struct gb_device *device)
{
    unsigned i = 0;

    while (i < server->device_count && server->devices[i] != device)
        i++;
    return i;
}

static int handle_segments(struct gb_call *call, const void *p)
{
    const struct page_params *params = p;
    struct gb_server *server = call->server;
    const struct gb_segment *last = NULL;
    struct page page;
    unsigned d = 0;

    if (params->cursor && !(last = gb_store_segment(&server->store, params->cursor)))
        return gb_fail(&call->error, GPUBUF_E_STALE,
                       "the cursor, segment %" PRIu64 ", is no more: begin anew", params->cursor);
    if (last)
        d = device_index(server, last->device);
    page = page_begin(call, "segments");
    for (; d < server->device_count; d++) {
        struct gb_link *head = &server->devices[d]->segment_list;
        const struct gb_link *link = last ? last->of_device.next : gb_list_first(head);

        for (last = NULL; link != head; link = link->next) {
            const struct gb_segment *segment = GB_CONTAINER(link, struct gb_segment, of_device);

            if (!page_add(&page, segment->id))
                return page_end(&page);
            write_segment(call->writer, segment);
        }
    }
    return page_end(&page);
}

const struct gb_method gb_method_segments = {
    GB_METHOD_ROW("segments", 0, page_fields, handle_segments, struct page_params)};

/* ---- sessions ---- */

static void write_provides(struct gb_writer *writer, const struct gb_provider *provider)
{
    const char *separator = ",\"provides\":[";

    if (provider->prefix_count == 0)
        return;
    GB_LIST_EACH(&provider->prefixes, const struct gb_prefix, prefix, of_provider) {
        gb_write_text(writer, separator);
        gb_write_string(writer, prefix->text, prefix->length);
        separator = ",";
    }
    gb_write_format(writer, "],\"wanted\":%" PRIu64, provider->asked_count);
}

static void write_session(struct gb_writer *writer, const struct gb_session *session)
{
    gb_write_format(writer,
                    "{\"session\":%" PRIu64 ",\"pid\":%d,\"uid\":%u,\"client\":", session->id,
                    session->pid, session->user->uid);
    gb_write_cstring(writer, session->client ? session->client : "");
    gb_write_format(writer,
                    ",\"leases\":%" PRIu64 ",\"cached\":%" PRIu64 ",\"parked\":%" PRIu64
                    ",\"bytes\":%" PRIu64 ",\"mapped_bytes\":%" PRIu64,
                    session->holder.count - session->holder.idle - session->holder.parked,
                    session->holder.idle, session->holder.parked, gb_holder_bytes(&session->holder),
                    session->mapper.bytes);
    write_provides(writer, &session->provider);
    gb_write_char(writer, '}');
}

/* Lists sessions in the order in which they began, which is that of their ids. */
static int handle_sessions(struct gb_call *call, const void *p)
{
    const struct page_params *params = p;
    struct page page = page_begin(call, "sessions");

    GB_LIST_EACH(&call->server->sessions, const struct gb_session, session, of_server) {
        if (session->id <= params->cursor)
            continue;
        if (!page_add(&page, session->id))
            break;
        write_session(call->writer, session);
    }
    return page_end(&page);
}

const struct gb_method gb_method_sessions = {
    GB_METHOD_ROW("sessions", 0, page_fields, handle_sessions, struct page_params)};
