#include "client/lib/session/hello.h"

#include <inttypes.h>
#include <string.h>

#include "client/lib/wire/request.h"

void gb_write_hello(struct gb_writer *writer, const char *name)
{
    GB_WRITE_LITERAL(writer, "{\"protocol\":");
    gb_write_uint(writer, GPUBUF_PROTOCOL);
    if (*name) {
        GB_WRITE_LITERAL(writer, ",\"client\":");
        gb_write_cstring(writer, name);
    }
}

struct welcome {
    uint64_t protocol, session;
    struct gb_string instance;
    struct gb_json limits, resumed;
};

struct limits {
    uint64_t names, line_bytes, request_bytes;
};

static bool is_hex(const char *text)
{
    return text[strspn(text, "0123456789abcdef")] == '\0';
}

int gb_read_welcome(struct gpubuf_client *client, struct gb_json result, struct gb_json *resumed,
                    struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct welcome, protocol, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct welcome, instance, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0,
                 GB_INSTANCE_BYTES - 1),
        GB_FIELD(struct welcome, session, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct welcome, limits, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct welcome, resumed, GB_FIELD_ARRAY, 0, 0, 0),
    };
    static const struct gb_field limit_fields[] = {
        GB_FIELD(struct limits, names, GB_FIELD_UINT, 0, 1, 0),
        GB_FIELD(struct limits, line_bytes, GB_FIELD_UINT, 0, 4096, 0),
        GB_FIELD(struct limits, request_bytes, GB_FIELD_UINT, 0, 4096, 0),
    };
    struct welcome welcome = {0};
    struct limits limits = {client->daemon.names_max, client->daemon.line_bytes_max,
                            client->daemon.request_bytes_max};
    struct gb_path path = {.key = "result"};

    int r = gb_json_type(result) == GB_JSON_OBJECT
                ? 0
                : gb_fail(error, GPUBUF_E_PROTOCOL, "expected an object");
    if (r == 0)
        r = gb_json_read(result, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE,
                         &path, &client->pool, &welcome, NULL, error);
    if (r == 0)
        r = gb_json_read(welcome.limits, limit_fields, 3, GB_UNKNOWN_IGNORE, &path, &client->pool,
                         &limits, NULL, error);
    if (r == GPUBUF_E_NO_MEMORY)
        return r;
    if (r < 0 || !is_hex(welcome.instance.text)) {
        struct gb_error cause = *error;
        return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon's greeting is malformed: %s",
                       r < 0 ? cause.message : "its instance is not hex");
    }
    if (welcome.protocol != GPUBUF_PROTOCOL)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the daemon speaks protocol %" PRIu64 ", this library speaks %d",
                       welcome.protocol, GPUBUF_PROTOCOL);

    if (strcmp(client->daemon.instance, welcome.instance.text) != 0)
        memcpy(client->daemon.instance, welcome.instance.text, welcome.instance.length + 1);
    atomic_store(&client->session, welcome.session);
    (void)atomic_fetch_add(&client->connections, 1);
    if (limits.names < client->daemon.names_max)
        client->daemon.names_max = limits.names;
    if (limits.line_bytes < client->daemon.line_bytes_max)
        client->daemon.line_bytes_max = limits.line_bytes;
    if (limits.request_bytes < client->daemon.request_bytes_max)
        client->daemon.request_bytes_max = limits.request_bytes;
    if (resumed)
        *resumed = welcome.resumed;
    return 0;
}
