#include "daemon/methods/call.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/utf8.h"

const struct gb_path gb_params_path = {.key = "params"};

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

int gb_call_version(struct gb_call *call, uint64_t version)
{
    gb_call_begin_result(call);
    GB_WRITE_UINT(call->writer, "{\"version\":", version);
    gb_write_char(call->writer, '}');
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
    return gb_fail_memory(&call->error);
}

int gb_call_find(struct gb_call *call, const struct gb_string *name, struct gb_object **out)
{
    struct gb_object *object = gb_registry_find(&call->server->registry, name->text, name->length);

    if (!object && gb_name_check(name->text, name->length, GB_PARAM("name"), &call->error) < 0)
        return call->error.code; /* no object can ever have that name */
    if (!object || !gb_session_may_read(call->session, object))
        return gb_call_fail_name(call, GPUBUF_E_NOT_FOUND, name,
                                 "there is no object \"%s\", or none that you may open",
                                 name->text);
    *out = object;
    return 0;
}

int gb_call_check_label(struct gb_call *call, const struct gb_string *label)
{
    if (!label->text || gb_utf8_is_plain(label->text, label->length))
        return 0;
    return gb_fail_at(
        &call->error, GB_PARAM("label"),
        "the label has a control character, or one that turns the direction of text or "
        "shows nothing");
}

int gb_call_label(struct gb_call *call, const struct gb_string *label, struct gb_string *json)
{
    struct gb_writer writer;

    *json = (struct gb_string){.text = NULL};
    if (!label->length)
        return 0;
    if (gb_call_check_label(call, label) < 0)
        return call->error.code;
    gb_writer_init(&writer, 0);
    gb_write_string(&writer, label->text, label->length);
    if (!writer.failed)
        json->text = gb_pool_strndup(call->pool, writer.data, writer.length);
    json->length = writer.length;
    gb_writer_end(&writer);
    return json->text ? 0 : gb_call_no_memory(call);
}

/* How many versions without the name are looked at, since leases may keep any number. */
#define HELD_LIMIT 1024u

static bool is_meant(const struct gb_object *object, const struct gb_which *which,
                     const struct gb_string *label)
{
    if (which->version)
        return object->version == which->version;
    return object->label.length == label->length && object->label.text &&
           memcmp(object->label.text, label->text, label->length) == 0;
}

/* Writes the versions that the name has, as the end of a sentence: 7 ("step-7"), 6 */
static void write_versions(struct gb_call *call, const struct gb_object *object, char *text,
                           size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (; object && object->named; object = gb_object_older(object)) {
        size_t label = object->label.text ? object->label.length + 3 : 0;

        if (!gb_session_may_read(call->session, object))
            continue;
        if (length + label + 32 > size)
            break;
        length += (size_t)sprintf(text + length, "%s%" PRIu64, length ? ", " : "", object->version);
        if (label)
            length += (size_t)sprintf(text + length, " (%.*s)", (int)object->label.length,
                                      object->label.text);
    }
}

static int fail_which(struct gb_call *call, const struct gb_string *name,
                      const struct gb_which *which, const struct gb_string *label,
                      const struct gb_object *current)
{
    char has[256];

    write_versions(call, current, has, sizeof(has));
    if (which->version)
        return gb_call_fail_name(call, GPUBUF_E_STALE, name,
                                 "\"%s\" has no version %" PRIu64 " to open; it has %s", name->text,
                                 which->version, has);
    return gb_call_fail_name(call, GPUBUF_E_NOT_FOUND, name,
                             "\"%s\" has no version labelled %s; it has %s", name->text,
                             label->text, has);
}

int gb_call_find_which(struct gb_call *call, const struct gb_string *name,
                       const struct gb_which *which, struct gb_object **out)
{
    struct gb_object *current, *object;
    struct gb_string label;
    unsigned looked = 0;

    if (!which->version && !which->label.text)
        return gb_call_find(call, name, out);
    if (which->label.text && (which->version || !which->label.length))
        return gb_fail_at(&call->error, GB_PARAM("label"),
                          which->version ? "goes without version" : "expected at least one byte");
    if (gb_call_label(call, &which->label, &label) < 0)
        return call->error.code;
    current = gb_registry_find(&call->server->registry, name->text, name->length);
    for (object = current; object && (object->named || (which->held && looked++ < HELD_LIMIT));
         object = gb_object_older(object)) {
        if (!is_meant(object, which, &label) || !gb_session_may_read(call->session, object))
            continue;
        *out = object;
        return 0;
    }
    for (object = current; object && object->named; object = gb_object_older(object))
        if (gb_session_may_read(call->session, object))
            return fail_which(call, name, which, &label, current);
    return gb_call_find(call, name, out); /* fails: there is none that the session may open */
}

int gb_call_find_changeable(struct gb_call *call, const struct gb_string *name,
                            const struct gb_which *which, struct gb_object **out)
{
    static const struct gb_which current = {.version = 0};
    int r = gb_call_find_which(call, name, which ? which : &current, out);

    if (r < 0 || gb_session_may_change(call->session, *out))
        return r;
    return gb_call_fail_name(call, GPUBUF_E_DENIED, name,
                             "\"%s\" belongs to uid %u, and its mode %04o does not let you "
                             "change it",
                             name->text, (*out)->owner->uid, (*out)->mode);
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

int gb_call_choose(struct gb_call *call, const char *param, const struct gb_string *text,
                   int absent, const char *const *names)
{
    char expected[128] = "";
    size_t length = 0;

    if (!text->text)
        return absent;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text->text) == 0)
            return i;
        length += (size_t)snprintf(expected + length, sizeof(expected) - length, "%s\"%s\"",
                                   i == 0         ? ""
                                   : names[i + 1] ? ", "
                                                  : " or ",
                                   names[i]);
    }
    return gb_fail_at(&call->error, GB_PARAM(param), "expected %s, found \"%.32s\"", expected,
                      text->text);
}

int gb_call_device(struct gb_call *call, const struct gb_string *text, struct gb_device **device)
{
    const struct gb_server *server = call->server;
    char served[128] = "";
    size_t length = 0;

    *device = gb_device_find(server->devices, server->device_count, text->text);
    if (*device)
        return 0;
    for (unsigned i = 0; i < server->device_count && length < sizeof(served); i++)
        length += (size_t)snprintf(served + length, sizeof(served) - length, "%s%s",
                                   i > 0 ? ", " : "", server->devices[i]->id);
    return gb_fail_at(&call->error, GB_PARAM("device"),
                      "this daemon serves no device \"%.64s\"; it serves %s", text->text, served);
}

int gb_call_may_lease(struct gb_call *call)
{
    const struct gb_session *session = call->session;
    const struct gb_limits *limits = call->server->limits;

    if (session->holder.count >= limits->session_leases)
        return gb_fail_limit(&call->error, "session_leases", (long long)limits->session_leases,
                             "leases of a session");
    return gb_user_may_have(session->user, GB_QUOTA_LEASES, NULL, 1, &call->error);
}

int gb_call_check_lost(struct gb_call *call, const struct gb_device *device)
{
    const struct gb_making *making = call->wait ? &call->wait->making : NULL;

    if (!device->lost)
        return 0;
    if (!making || making->code == 0)
        return gb_fail(&call->error, GPUBUF_E_DEVICE, "the device %s is lost", device->id);
    call->error = making->error;
    return making->code;
}

int gb_call_name(struct gb_call *call, struct gb_json item, const struct gb_path *path,
                 struct gb_string *name)
{
    int r = gb_json_string(item, 0, path, call->pool, name, &call->error);

    return r < 0 ? r : gb_name_check(name->text, name->length, path, &call->error);
}

int gb_call_each(struct gb_call *call, struct gb_json array, const char *key,
                 int (*one)(struct gb_call *call, struct gb_json item, const struct gb_path *path))
{
    struct gb_json_walk walk = gb_json_walk(array);
    struct gb_error first = {0};
    struct gb_json item;
    uint64_t index = 0;

    for (; gb_json_next(&walk, NULL, &item); index++) {
        struct gb_path path = {.up = GB_PARAM(key), .index = index};

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
