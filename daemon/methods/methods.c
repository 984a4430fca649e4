#include "daemon/methods/methods.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/probes.h"
#include "daemon/serve/pause.h"

/* In the order of docs/PROTOCOL.md. */
static const struct gb_method *const methods[] = {
    &gb_method_hello, &gb_method_create,  &gb_method_seal,    &gb_method_settle,
    &gb_method_abort, &gb_method_open,    &gb_method_release, &gb_method_register,
    &gb_method_alias, &gb_method_delete,  &gb_method_list,    &gb_method_stat,
    &gb_method_pin,   &gb_method_unpin,   &gb_method_spill,   &gb_method_restore,
    &gb_method_why,   &gb_method_leases,  &gb_method_unmap,   &gb_method_trim,
    &gb_method_watch, &gb_method_unwatch, &gb_method_stats,   &gb_method_describe,
};

#define METHOD_COUNT (sizeof(methods) / sizeof(methods[0]))

const struct gb_path gb_params_path = {.key = "params"};

size_t gb_method_count(void)
{
    return METHOD_COUNT;
}

const struct gb_method *gb_method_at(size_t i)
{
    return methods[i];
}

static size_t find_method(const struct gb_string *name)
{
    size_t i = 0;

    while (i < METHOD_COUNT && strcmp(methods[i]->name, name->text) != 0)
        i++;
    return i;
}

/* ---- one request ---- */

static void close_fds(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Decodes the parameters and lets the method answer: an outcome, or a code with call->error set. */
static int handle(struct gb_call *call)
{
    const struct gb_method *method = call->method;
    uint64_t present = 0;
    void *params;

    if ((method->flags & GB_METHOD_ADMIN) && !gb_session_is_admin(call->session))
        return gb_fail(&call->error, GPUBUF_E_DENIED, "%s is for root and the daemon's own user",
                       method->name);
    if (call->fd_count > 0 && !(method->flags & GB_METHOD_FDS))
        return gb_fail(&call->error, GPUBUF_E_INVALID, "%s takes no descriptors", method->name);
    params = gb_pool_calloc(call->pool, 1, method->params_size);
    if (!params)
        return gb_call_no_memory(call);
    if (call->params_text.text) {
        int r =
            gb_json_read(call->params_text, method->fields, method->field_count, GB_UNKNOWN_REFUSE,
                         &gb_params_path, call->pool, params, &present, &call->error);
        if (r < 0)
            return r;
    }
    gb_call_alone(call->pool);
    if (!(method->flags & GB_METHOD_APART))
        gb_sessions_give_back(call->server, UINT64_MAX);
    for (size_t i = 0; i < method->field_count; i++)
        if ((method->fields[i].flags & GB_FIELD_REQUIRED) && !(present & (uint64_t)1 << i))
            return gb_fail_at(&call->error, GB_PARAM(method->fields[i].name), "missing");
    return method->handle(call, params, present);
}

/* Counts the request as answered, with how long it took. */
static void note(struct gb_call *call, int r)
{
    struct gb_metrics *metrics = &call->server->metrics;
    size_t index = call->method ? call->index : METHOD_COUNT;
    const char *name = call->method ? call->method->name : "unknown";
    uint64_t waited_since = call->wait ? gb_wait_begun_ns(call->wait) : 0;
    uint64_t begun_ns, ns;

    if (r == GPUBUF_E_LIMIT && call->error.limit)
        gb_metrics_limit(metrics, call->error.limit);
    begun_ns = waited_since ? waited_since : metrics->begun_ns;
    ns = gb_metrics_request(metrics, index, r < 0 ? r : 0, waited_since);
    GB_PROBE4(request, name, call->session->id, r < 0 ? r : 0, ns);
    if (call->server->trace)
        gb_trace_request(call->server->trace, call->session->id, name,
                         r < 0 ? gb_error_kind(r) : "ok", begun_ns, ns, waited_since > 0);
}

/* Sends the result or the error; a notification gets neither. */
static void answer(struct gb_call *call, int r)
{
    note(call, r);
    if (r < 0) {
        if (call->method)
            call->server->counts[call->index].errors++;
        if (call->error.code == GPUBUF_E_INTERNAL || call->error.code == GPUBUF_E_DEVICE)
            gb_log(GB_LOG_ERROR, "request failed",
                   GB_LOG_TEXT("method", call->method ? call->method->name : ""),
                   GB_LOG_NUMBER("pid", call->session->pid),
                   GB_LOG_TEXT("why", call->error.message));
        close_fds(call->reply_fds, call->reply_fd_count);
        call->reply_fd_count = 0;
        gb_writer_reset(call->writer);
        if (call->id.text || !call->method)
            gb_rpc_write_error(call->writer, call->id, &call->error);
    } else if (call->id.text) {
        gb_rpc_end(call->writer);
    } else {
        close_fds(call->reply_fds, call->reply_fd_count);
        call->reply_fd_count = 0;
        return;
    }
    call->writer->failed |= call->writer->length > GB_LIMIT(line_bytes);
    if (call->writer->length > 0 || call->writer->failed)
        gb_session_answer(call->session, call->writer, call->reply_fds, call->reply_fd_count);
}

static int run(struct gb_call *call)
{
    int r;

    gb_writer_reset(call->writer);
    r = handle(call);
    if (r == GB_WAITS)
        return GB_WAITS;
    answer(call, r);
    return GB_DONE;
}

static void call_init(struct gb_call *call, struct gb_session *session, const char *line,
                      size_t length)
{
    struct gb_server *server = session->server;

    memset(call, 0, offsetof(struct gb_call, error));
    call->server = server;
    call->session = session;
    call->pool = &server->desk.pool;
    call->writer = &server->desk.writer;
    call->line = line;
    call->line_length = length;
    gb_pool_reset(call->pool);
}

/*
 * The descriptors that the message says it brings. When it cannot be told how many a broken line
 * brought, and some are there, they are out of step with the messages for good.
 */
static int take_fds(struct gb_call *call, const struct gb_rpc_request *request, int read, int *fds)
{
    struct gb_frame *frame = &call->session->conn.in;

    if (read < 0 && frame->fd_count > 0 && request->fds == 0)
        return GPUBUF_E_PROTOCOL;
    if (request->fds == 0)
        return 0;
    if (request->fds > GB_LIMIT(fds) || gb_frame_take_fds(frame, fds, (unsigned)request->fds) < 0)
        return GPUBUF_E_PROTOCOL;
    call->fds = fds;
    call->fd_count = (unsigned)request->fds;
    return 0;
}

int gb_methods_serve(struct gb_session *session, const char *line, size_t length)
{
    struct gb_rpc_request request = {0};
    struct gb_call call;
    int fds[GB_LIMIT(fds)];
    int r;

    call_init(&call, session, line, length);
    gb_call_share(&call, call.pool);
    r = gb_rpc_read_request(line, length, call.pool, &request, &call.error);
    call.id = request.id;
    call.params_text = request.params;
    if (take_fds(&call, &request, r, fds) < 0) {
        gb_fail(&call.error, GPUBUF_E_REQUEST,
                "the message does not bring the descriptors that it should; the session ends");
        answer(&call, GPUBUF_E_REQUEST);
        return GPUBUF_E_PROTOCOL;
    }
    if (r == 0 && (call.index = find_method(&request.method)) < METHOD_COUNT) {
        call.method = methods[call.index];
        session->server->counts[call.index].calls++;
        r = run(&call);
        if (call.method != &gb_method_hello)
            session->greeted = true; /* hello can only come first */
    } else {
        if (r == 0)
            r = gb_fail(&call.error, GPUBUF_E_METHOD, "there is no method \"%.64s\"",
                        request.method.text);
        if (request.id.text || !request.method.text)
            answer(&call, r);
    }
    gb_call_alone(call.pool);
    if (r != GB_WAITS)
        close_fds(call.fds, call.fd_count);
    return 0;
}

bool gb_methods_retry(struct gb_wait *wait, bool last_try)
{
    struct gb_session *session = gb_wait_session(wait);
    struct gb_rpc_request request = {0};
    struct gb_call call;
    const char *line;
    size_t length;

    line = gb_wait_line(wait, &length);
    call_init(&call, session, line, length);
    call.wait = wait;
    call.last_try = last_try;
    call.fds = gb_wait_fds(wait, &call.fd_count);
    if (gb_rpc_read_request(line, length, call.pool, &request, &call.error) < 0) {
        /* It was readable once, so memory is out. Whose request it was cannot be told. */
        call.writer->failed = true;
        gb_session_send(session, call.writer, NULL, 0);
        gb_wait_end(wait);
        return true;
    }
    call.id = request.id;
    call.params_text = request.params;
    call.index = find_method(&request.method);
    call.method = methods[call.index];
    if (run(&call) == GB_WAITS)
        return false;
    gb_wait_end(wait);
    return true;
}

/* ---- for the handlers ---- */

/* One that waited is tried in the middle of things. And nobody is served while somebody who is gone holds
   something. */
static bool may_pause(const struct gb_call *call)
{
    return call->session->serving && !call->server->pausing && !call->wait &&
           !gb_session_lingers(call->session);
}

static void pause_call(void *arg)
{
    const struct gb_call *call = arg;

    if (!gb_session_lingers(call->session))
        gb_pause(call->server);
}

void gb_call_pause(struct gb_call *call)
{
    if (may_pause(call))
        gb_pause(call->server);
}

void gb_call_share(struct gb_call *call, struct gb_pool *pool)
{
    if (!may_pause(call))
        return;
    pool->pause = pause_call;
    pool->pause_arg = call;
}

void gb_call_alone(struct gb_pool *pool)
{
    pool->pause = NULL;
}

void gb_call_begin_result(struct gb_call *call)
{
    if (call->id.text)
        gb_rpc_begin_result(call->writer, call->id, call->reply_fd_count);
}

int gb_call_empty(struct gb_call *call)
{
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{}");
    return GB_DONE;
}

int gb_call_fail_name(struct gb_call *call, int code, const struct gb_string *name,
                      const char *format, ...)
{
    va_list args;
    char message[sizeof(call->error.message)];

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    gb_fail(&call->error, code, "%s", message);
    snprintf(call->error.name, sizeof(call->error.name), "%s", name->text);
    return code;
}

int gb_call_no_memory(struct gb_call *call)
{
    return gb_fail(&call->error, GPUBUF_E_NO_MEMORY, "the daemon is out of memory");
}

int gb_call_find(struct gb_call *call, const struct gb_string *name, struct gb_object **out)
{
    struct gb_object *object = gb_registry_find(&call->server->registry, name->text, name->length);

    if (!object || !gb_session_may_read(call->session, object))
        return gb_call_fail_name(call, GPUBUF_E_NOT_FOUND, name,
                                 "there is no object \"%s\", or none that you may open",
                                 name->text);
    *out = object;
    return 0;
}

int gb_call_find_changeable(struct gb_call *call, const struct gb_string *name,
                            struct gb_object **out)
{
    struct gb_object *object = gb_registry_find(&call->server->registry, name->text, name->length);
    bool may_change = object && gb_session_may_change(call->session, object);

    if (!object || (!may_change && !gb_session_may_read(call->session, object)))
        return gb_call_find(call, name, out);
    if (!may_change)
        return gb_call_fail_name(call, GPUBUF_E_DENIED, name,
                                 "\"%s\" belongs to uid %u, and its mode %04o does not let you "
                                 "change it",
                                 name->text, object->owner->uid, object->mode);
    *out = object;
    return 0;
}

int gb_call_mode(struct gb_call *call, const struct gb_string *text, unsigned fallback,
                 unsigned *mode)
{
    unsigned value = 0;

    if (!text->text) {
        *mode = fallback;
        return 0;
    }
    for (const char *digit = text->text; *digit; digit++) {
        if (*digit < '0' || *digit > '7' || text->length > 5)
            return gb_fail_at(&call->error, GB_PARAM("mode"),
                              "\"%.16s\" is no octal mode such as \"0640\"", text->text);
        value = value * 8 + (unsigned)(*digit - '0');
    }
    if (text->length < 3 || (value & ~0666u))
        return gb_fail_at(&call->error, GB_PARAM("mode"),
                          "\"%.16s\": expected three octal digits of 0, 2, 4 or 6, such as "
                          "\"0640\"",
                          text->text);
    *mode = value;
    return 0;
}

int gb_call_evict(struct gb_call *call, const struct gb_string *text, enum gb_evict *evict)
{
    static const char *const names[] = {"spill", "drop", "keep"};

    *evict = GB_EVICT_SPILL;
    if (!text->text)
        return 0;
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(names[i], text->text) == 0) {
            *evict = (enum gb_evict)i;
            return 0;
        }
    return gb_fail_at(&call->error, GB_PARAM("evict"),
                      "expected \"spill\", \"drop\" or \"keep\", found \"%.32s\"", text->text);
}

int gb_call_device(struct gb_call *call, const struct gb_string *text, struct gb_device **device)
{
    *device = gb_server_device(call->server, text->text);
    if (*device)
        return 0;
    return gb_fail_at(&call->error, GB_PARAM("device"),
                      "this daemon serves no device \"%.64s\"; hello says which it serves",
                      text->text);
}

int gb_call_check_lost(struct gb_call *call, const struct gb_device *device)
{
    const struct gb_making *making = call->wait ? gb_wait_making(call->wait) : NULL;

    if (!device->lost)
        return 0;
    if (!making || making->code == 0)
        return gb_fail(&call->error, GPUBUF_E_DEVICE, "the device %s is lost", device->id);
    call->error = making->error;
    return making->code;
}

int gb_call_strings(struct gb_call *call, struct gb_json array, const char *key,
                    struct gb_string **out, size_t *out_count)
{
    size_t count = gb_json_count(array, call->pool), i = 0;
    struct gb_string *strings = gb_pool_calloc(call->pool, count ? count : 1, sizeof(*strings));
    struct gb_json_walk walk = gb_json_walk(array, call->pool);
    struct gb_json item;

    if (!strings)
        return gb_call_no_memory(call);
    for (; gb_json_next(&walk, NULL, &item); i++) {
        struct gb_path path = {.up = GB_PARAM(key), .index = i};

        if (gb_json_string(item, 0, &path, call->pool, &strings[i], &call->error) < 0)
            return call->error.code;
    }
    *out = strings;
    *out_count = count;
    return 0;
}

int gb_call_each(struct gb_call *call, struct gb_json array, const char *key,
                 int (*one)(struct gb_call *call, struct gb_json item, const struct gb_path *path))
{
    struct gb_json_walk walk = gb_json_walk(array, call->pool);
    struct gb_error first = {0};
    struct gb_json item;
    uint64_t index = 0;

    for (; gb_json_next(&walk, NULL, &item); index++) {
        struct gb_path path = {.up = GB_PARAM(key), .index = index};

        if (index % GB_CALL_PAUSE_ITEMS == 0)
            gb_call_pause(call);
        if (one(call, item, &path) < 0 && !first.code)
            first = call->error;
    }
    if (!first.code)
        return gb_call_empty(call);
    call->error = first;
    return first.code;
}

int gb_call_lease(struct gb_call *call, uint64_t id, struct gb_lease **lease)
{
    *lease = gb_lease_find(&call->server->registry, id, &call->session->holder);
    if (*lease)
        return 0;
    return gb_fail(&call->error, GPUBUF_E_STALE, "this session holds no lease %" PRIu64, id);
}

/* ---- segments of a reply ---- */

static bool noted(const struct gb_segments *segments, const struct gb_segment *segment)
{
    for (unsigned i = 0; i < segments->count; i++)
        if (segments->items[i].segment == segment)
            return true;
    return false;
}

static int segment_fd(const struct gb_segment *segment, enum gb_access access)
{
    return access == GB_ACCESS_WRITE ? segment->memory.write_fd : segment->memory.read_fd;
}

/* How many there may be is the operating system's limit, not one of ours. */
static int no_descriptor(struct gb_call *call, int why)
{
    struct rlimit files = {0};
    char text[128];

    snprintf(text, sizeof(text), "the daemon cannot open another descriptor: %s", strerror(why));
    if (why != EMFILE && why != ENFILE)
        return gb_fail(&call->error, why == ENOMEM ? GPUBUF_E_NO_MEMORY : GPUBUF_E_INTERNAL, "%s",
                       text);
    getrlimit(RLIMIT_NOFILE, &files);
    return gb_fail_limit(&call->error, "open_files", (long long)files.rlim_cur, text);
}

/* Enters one segment in the reply and in the account of who maps what. */
static int note_segment(struct gb_call *call, struct gb_segments *segments,
                        struct gb_segment *segment, enum gb_access had, enum gb_access access)
{
    bool by_fd = segment->memory.kind != GB_HANDLE_CUDA_IPC;
    int fd = by_fd ? fcntl(segment_fd(segment, access), F_DUPFD_CLOEXEC, 3) : -1;

    if (by_fd && fd < 0)
        return no_descriptor(call, errno);
    if (gb_mapper_add(&call->server->store, &call->session->mapper, segment, access) < 0) {
        if (by_fd)
            close(fd);
        return gb_call_no_memory(call);
    }
    segments->items[segments->count].segment = segment;
    segments->items[segments->count].access = access;
    segments->items[segments->count].had = had;
    segments->items[segments->count++].fd_index = by_fd ? (int)call->reply_fd_count : -1;
    if (by_fd)
        call->reply_fds[call->reply_fd_count++] = fd;
    return 0;
}

/* Takes back what note_segment entered last. */
static void forget_last(struct gb_call *call, struct gb_segments *segments)
{
    const struct gb_segment *segment = segments->items[--segments->count].segment;
    struct gb_mapping *mapping =
        gb_mapper_find(&call->server->store, &call->session->mapper, segment->id);

    if (segments->items[segments->count].fd_index >= 0)
        close(call->reply_fds[--call->reply_fd_count]);
    if (segments->items[segments->count].had != GB_ACCESS_NONE)
        mapping->access = segments->items[segments->count].had;
    else
        gb_mapping_end(&call->server->store, mapping);
}

void gb_segments_forget(struct gb_call *call, struct gb_segments *segments, unsigned count)
{
    while (segments->count > count)
        forget_last(call, segments);
}

int gb_segments_add(struct gb_call *call, struct gb_segments *segments,
                    const struct gb_storage *storage, enum gb_access access, bool all)
{
    const struct gb_store *store = &call->server->store;
    const struct gb_mapper *mapper = &call->session->mapper;
    struct gb_segment *wanted[GB_LIMIT(fds)];
    enum gb_access had[GB_LIMIT(fds)];
    unsigned count = 0, entered;

    for (unsigned i = 0; i < storage->placement_count; i++) {
        struct gb_segment *segment = storage->placements[i].segment;
        const struct gb_mapping *mapping = gb_mapper_find(store, mapper, segment->id);

        if (noted(segments, segment) || (!all && mapping && mapping->access >= access))
            continue;
        had[count] = mapping ? mapping->access : GB_ACCESS_NONE;
        wanted[count++] = segment;
    }
    if (segments->count + count > GB_LIMIT(fds))
        return 1;
    for (entered = 0; entered < count; entered++) {
        int r = note_segment(call, segments, wanted[entered], had[entered], access);

        if (r == 0)
            continue;
        gb_segments_forget(call, segments, segments->count - entered);
        return r;
    }
    return 0;
}

void gb_segments_write(struct gb_writer *writer, const struct gb_segments *segments)
{
    GB_WRITE_LITERAL(writer, "\"segments\":[");
    for (unsigned i = 0; i < segments->count; i++) {
        const struct gb_segment *segment = segments->items[i].segment;
        struct gb_segment_info info = {
            .id = segment->id,
            .device = segment->device->id,
            .bytes = segment->bytes,
            .writable = segments->items[i].access == GB_ACCESS_WRITE,
            .handle = {.kind = segment->memory.kind,
                       .fd = (uint64_t)segments->items[i].fd_index,
                       .uuid = segment->device->id},
        };

        memcpy(info.handle.ipc, segment->memory.ipc, sizeof(info.handle.ipc));
        if (i > 0)
            gb_write_char(writer, ',');
        gb_segment_write(writer, &info);
    }
    gb_write_char(writer, ']');
}

void gb_lease_write(struct gb_writer *writer, const struct gb_lease *lease)
{
    GB_WRITE_LITERAL(writer, "\"lease\":");
    gb_write_uint(writer, lease->id);
    GB_WRITE_LITERAL(writer, ",\"object\":");
    gb_object_write(writer, lease->object, true);
}

int gb_call_grant(struct gb_call *call, const struct gb_lease *lease,
                  const struct gb_segments *segments)
{
    gb_call_begin_result(call);
    gb_write_char(call->writer, '{');
    gb_lease_write(call->writer, lease);
    gb_write_char(call->writer, ',');
    gb_segments_write(call->writer, segments);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}
