/* hello: greets a session, which may resume the leases that it lost with a broken connection. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/methods/live.h"
#include "daemon/objects/text.h"
#include "proto/base/utf8.h"
#include "proto/wire/stream.h"

struct hello_params {
    uint64_t protocol;
    struct gb_string client;
    struct gb_json resume;
    bool cache;
};

static const struct gb_field hello_fields[] = {
    GB_FIELD(struct hello_params, protocol, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct hello_params, client, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct hello_params, resume, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct hello_params, cache, GB_FIELD_BOOL, 0, 0, 0),
};

struct resume_params {
    struct gb_string instance;
    struct gb_json objects;
    uint64_t session;
};

struct resumed_object {
    struct gb_string name;
    uint64_t version, segment, offset;
    uint64_t reader; /* NO_READER: it took part as none */
    bool parked, write;
};

#define NO_READER UINT64_MAX

struct resume {
    bool same_instance;
    uint64_t session; /* the former one, with the last of its objects; 0: not said */
    struct resumed_object *objects;
    size_t count;
};

static void write_devices(struct gb_call *call)
{
    struct gb_server *server = call->server;

    GB_WRITE_LITERAL(call->writer, "\"devices\":[");
    for (unsigned i = 0; i < server->device_count; i++) {
        const struct gb_device *device = server->devices[i];

        if (i > 0)
            gb_write_char(call->writer, ',');
        gb_device_write(call->writer, device, i == 0);
    }
    gb_write_char(call->writer, ']');
}

static void write_limits(struct gb_call *call)
{
    const struct gb_quota *quota = call->session->user->quota;
    struct gb_limits own = *call->server->limits, *limits = &own;
    const char *separator = "";

    for (unsigned kind = 0; kind < GB_QUOTA_BYTES; kind++)
        *gb_quota_limit(&own, kind) = quota->most[kind];
    own.user_bytes = quota->bytes[0]; /* on the default device */
    GB_WRITE_LITERAL(call->writer, "\"limits\":{");
#define WRITE_LIMIT(name, value, text)                                                             \
    gb_write_format(call->writer, "%s\"" #name "\":%" PRIu64, separator, limits->name);            \
    separator = ",";
    GB_LIMIT_MAP(WRITE_LIMIT)
#undef WRITE_LIMIT
    gb_write_char(call->writer, '}');
}

/* Grants a lease for reading to a client that still maps the object's segments, which count as
   given; or maps none, if the lease was parked. */
static struct gb_lease *grant_lease(struct gb_call *call, struct gb_object *object, bool parked)
{
    struct gb_server *server = call->server;
    struct gb_lease *lease =
        gb_lease_new(&server->registry, object, &call->session->holder, false, gb_now_ms());

    if (lease && parked) {
        gb_lease_park(&server->registry, lease, gb_now_ms());
        return lease;
    }
    for (unsigned i = 0; lease && i < object->storage->placement_count; i++)
        if (gb_mapper_add(&server->store, &call->session->mapper,
                          object->storage->placements[i].segment, GB_ACCESS_READ) < 0) {
            gb_lease_end(&server->registry, lease);
            lease = NULL;
        }
    return lease;
}

/* Whether the object still lies where the client maps it: it may have left its device in between,
   and come back to another place. */
static bool lies_there(const struct gb_object *object, const struct resumed_object *wanted)
{
    if (wanted->parked)
        return true;
    return object->storage->resident &&
           (!wanted->segment ||
            (object->first.segment == wanted->segment && object->first.offset == wanted->offset));
}

static int read_resumed(struct gb_call *call, struct gb_json item, const struct gb_path *path,
                        struct resumed_object *wanted)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct resumed_object, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct resumed_object, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct resumed_object, segment, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct resumed_object, offset, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct resumed_object, parked, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct resumed_object, write, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct resumed_object, reader, GB_FIELD_UINT, 0, 0, GB_STREAM_READERS - 1),
    };
    struct gb_path name = {.up = path, .key = "name"};
    int r;

    *wanted = (struct resumed_object){.reader = NO_READER};
    if (gb_json_type(item) != GB_JSON_OBJECT)
        return gb_fail_at(&call->error, path, "expected an object");
    r = gb_json_read(item, fields, 7, GB_UNKNOWN_REFUSE, path, call->pool, wanted, NULL,
                     &call->error);
    return r < 0 ? r : gb_name_check(wanted->name.text, wanted->name.length, &name, &call->error);
}

/* Reads all of `resume` before any lease is granted, so that a refusal changes nothing. */
static int read_resume(struct gb_call *call, struct gb_json value, struct resume *resume)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct resume_params, instance, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 64),
        GB_FIELD(struct resume_params, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0,
                 GB_LIMIT(names)),
        GB_FIELD(struct resume_params, session, GB_FIELD_UINT, 0, 1, GB_LIMIT(integer)),
    };
    struct gb_path objects_path = {.up = GB_PARAM("resume"), .key = "objects"};
    struct resume_params params = {0};
    struct gb_json_walk walk;
    struct gb_json item;
    int r = gb_json_read(value, fields, 3, GB_UNKNOWN_REFUSE, GB_PARAM("resume"), call->pool,
                         &params, NULL, &call->error);

    if (r < 0)
        return r;
    resume->session = params.session;
    resume->same_instance = strcmp(params.instance.text, call->server->instance) == 0;
    resume->objects =
        gb_pool_alloc(call->pool, (gb_json_count(params.objects) + 1) * sizeof(*resume->objects));
    if (!resume->objects)
        return gb_call_no_memory(call);
    for (walk = gb_json_walk(params.objects); gb_json_next(&walk, NULL, &item); resume->count++) {
        struct gb_path path = {.up = &objects_path, .index = resume->count};

        r = read_resumed(call, item, &path, &resume->objects[resume->count]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The version that the client had open, if it still exists; NULL: it does not. */
static struct gb_object *find_version(struct gb_call *call, const struct resumed_object *wanted)
{
    const struct gb_string *name = &wanted->name;
    struct gb_object *object = gb_registry_find(&call->server->registry, name->text, name->length);

    while (object && object->named && object->version != wanted->version)
        object = gb_object_older(object);
    if (object && object->named)
        return object;
    return gb_state_find_nameless(&call->server->state, name->text, name->length, wanted->version);
}

static struct gb_lease *resume_lease(struct gb_call *call, const struct resumed_object *wanted,
                                     uint64_t former)
{
    struct gb_object *object;

    if (wanted->write || wanted->reader != NO_READER)
        return gb_live_resume(call, &wanted->name, wanted->version,
                              wanted->write ? -1 : (int)wanted->reader, former);
    object = find_version(call, wanted);
    if (object && gb_session_may_read(call->session, object) && lies_there(object, wanted) &&
        gb_call_may_lease(call) == 0)
        return grant_lease(call, object, wanted->parked);
    return NULL;
}

/* Grants leases that the client had before its connection broke, for versions that still exist;
   writes null for others. */
static void grant_resumed(struct gb_call *call, const struct resume *resume, struct gb_writer *list)
{
    GB_FAILPOINT(RESUME_BEGIN);
    for (size_t i = 0; i < resume->count; i++) {
        const struct gb_lease *lease =
            resume->same_instance ? resume_lease(call, &resume->objects[i], resume->session) : NULL;

        if (i > 0)
            gb_write_char(list, ',');
        if (lease)
            gb_write_uint(list, lease->id);
        else
            GB_WRITE_LITERAL(list, "null");
        GB_FAILPOINT(RESUME_LEASE);
    }
    if (resume->same_instance && resume->session)
        gb_live_end_rest(call, resume->session);
    GB_FAILPOINT(RESUME_DONE);
}

static int greet(struct gb_call *call, const struct hello_params *params, struct resume *resume)
{
    struct gb_session *session = call->session;
    char *name = NULL;
    int r = 0;

    if (session->greeted && !params->resume.text && !params->cache)
        return gb_fail(&call->error, GPUBUF_E_BUSY,
                       "hello must be the first call; later it is only for `resume` or `cache`");
    if (params->protocol != GPUBUF_PROTOCOL)
        return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                       "protocol %" PRIu64 " is unknown here; this daemon speaks %d",
                       params->protocol, GPUBUF_PROTOCOL);
    if (params->resume.text)
        r = read_resume(call, params->resume, resume);
    if (r < 0)
        return r;
    if (params->client.text && !(name = strdup(params->client.text)))
        return gb_call_no_memory(call);
    if (name) {
        gb_utf8_make_plain(name);
        free(session->client);
        session->client = name;
        session->holder.client = name;
    }
    session->greeted = true;
    return 0;
}

/* Gives the session a page for leases that it caches. Without one it caches none, and is slower. */
static void send_page(struct gb_call *call)
{
    struct gb_holder *holder = &call->session->holder;
    int fd, pulse;

    if (holder->page || !call->id.text ||
        gb_user_may_charge(call->session->user, GB_STOCK_OPEN, 2, NULL) < 0)
        return;
    pulse = fcntl(call->server->pulse.fd, F_DUPFD_CLOEXEC, 3);
    if (pulse < 0 || gb_page_new(&holder->page, &fd, NULL) < 0) {
        if (pulse >= 0)
            close(pulse);
        return;
    }
    call->reply_fds[call->reply_fd_count++] = fd;
    call->reply_fds[call->reply_fd_count++] = pulse;
}

static int handle_hello(struct gb_call *call, const void *p)
{
    const struct hello_params *params = p;
    struct gb_server *server = call->server;
    struct gb_writer *list = call->text;
    struct resume resume = {0};
    int r = greet(call, params, &resume);

    if (r < 0)
        return r;
    if (params->resume.text)
        grant_resumed(call, &resume, list);
    if (params->cache)
        send_page(call);
    gb_call_begin_result(call);
    gb_write_format(call->writer,
                    "{\"protocol\":%d,\"server\":\"gpubufd %s\",\"instance\":\"%s\",\"session\":",
                    GPUBUF_PROTOCOL, GPUBUF_VERSION, server->instance);
    gb_write_uint(call->writer, call->session->id);
    gb_write_char(call->writer, ',');
    write_devices(call);
    gb_write_format(call->writer, ",\"evict\":\"%s\",", gb_evict_names[server->evict]);
    write_limits(call);
    if (call->reply_fd_count > 0)
        gb_write_format(call->writer, ",\"cache\":{\"fd\":0,\"slots\":%u,\"pulse\":1}",
                        GB_PAGE_SLOTS);
    if (params->resume.text) {
        GB_WRITE_LITERAL(call->writer, ",\"resumed\":[");
        gb_write(call->writer, list->data, list->length);
        gb_write_char(call->writer, ']');
        call->writer->failed |= list->failed;
    }
    gb_write_char(call->writer, '}');
    return GB_DONE;
}

const struct gb_method gb_method_hello = {
    GB_METHOD_ROW("hello", 0, hello_fields, handle_hello, struct hello_params)};
