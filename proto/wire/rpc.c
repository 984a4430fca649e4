#include "proto/wire/rpc.h"

#include <string.h>

#include "proto/base/limits.h"
#include "proto/base/utf8.h"

#define ID_BYTES 64 /* of an id that is a string */

/* The members of a message, in either direction. */
struct envelope {
    struct gb_json jsonrpc, id, method, params, result, error, fds;
};

/* In the order in which rpc.c itself writes them. */
static const struct gb_field request_fields[] = {
    GB_FIELD(struct envelope, jsonrpc, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, id, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, method, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, fds, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, params, GB_FIELD_ANY, 0, 0, 0),
};

static const struct gb_field message_fields[] = {
    GB_FIELD(struct envelope, jsonrpc, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, id, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, method, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, fds, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, params, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, result, GB_FIELD_ANY, 0, 0, 0),
    GB_FIELD(struct envelope, error, GB_FIELD_ANY, 0, 0, 0),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct gb_path id_path = {.key = "id"};
static const struct gb_path method_path = {.key = "method"};
static const struct gb_path params_path = {.key = "params"};
static const struct gb_path fds_path = {.key = "fds"};

/* ---- reading requests ---- */

/* Gives a failure of gb_json_* another code; GPUBUF_E_NO_MEMORY stays. */
static int recode(int r, int code, struct gb_error *error)
{
    if (r != GPUBUF_E_INVALID)
        return r;
    if (error)
        error->code = code;
    return code;
}

static int read_id(struct gb_json value, struct gb_pool *pool, struct gb_string *id,
                   struct gb_error *error)
{
    const int64_t largest = (int64_t)GB_LIMIT(integer);
    int64_t number;
    struct gb_string string;
    int r = 0;

    switch (gb_json_type(value)) {
    case GB_JSON_NULL:
        break;
    case GB_JSON_NUMBER:
        r = gb_json_int(value, -largest, largest, &id_path, &number, error);
        break;
    case GB_JSON_STRING:
        r = gb_json_string(value, ID_BYTES, &id_path, pool, &string, error);
        break;
    default:
        r = gb_fail_at(error, &id_path, "expected an integer, a string or null, found %s",
                       gb_json_type_name(gb_json_type(value)));
    }
    if (r == 0)
        *id = (struct gb_string){value.text, gb_json_length(value)};
    return recode(r, GPUBUF_E_REQUEST, error);
}

static int read_fds(struct gb_json value, uint64_t *fds, struct gb_error *error)
{
    return !value.text ? 0 : gb_json_uint(value, 0, GB_LIMIT(fds), &fds_path, fds, error);
}

/* Reads the two members of a broken request that its answer needs: the id, and how many descriptors
   to throw away. */
static void read_rest(struct gb_json object, struct gb_pool *pool, struct gb_rpc_request *request)
{
    struct envelope envelope = {0};

    gb_json_read(object, &request_fields[1], 1, GB_UNKNOWN_IGNORE, NULL, pool, &envelope, NULL,
                 NULL);
    gb_json_read(object, &request_fields[3], 1, GB_UNKNOWN_IGNORE, NULL, pool, &envelope, NULL,
                 NULL);
    if (envelope.id.text)
        read_id(envelope.id, pool, &request->id, NULL);
    read_fds(envelope.fds, &request->fds, NULL);
}

int gb_rpc_read_request(const char *line, size_t length, struct gb_pool *pool,
                        struct gb_rpc_request *request, struct gb_error *error)
{
    *request = (struct gb_rpc_request){0};
    struct gb_json value;
    int r = gb_json_check(line, length, pool, &value, error);
    if (r < 0)
        return r;
    if (gb_json_type(value) == GB_JSON_ARRAY)
        return gb_fail(error, GPUBUF_E_REQUEST,
                       "batches are not accepted: send one request a line");
    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_REQUEST, "expected a request, which is an object, found %s",
                       gb_json_type_name(gb_json_type(value)));

    struct envelope envelope = {0};
    r = gb_json_read(value, request_fields, COUNT(request_fields), GB_UNKNOWN_REFUSE, NULL, pool,
                     &envelope, NULL, error);
    if (r < 0) {
        read_rest(value, pool, request);
        return r;
    }
    int fds_rc = read_fds(envelope.fds, &request->fds, error);
    if (envelope.id.text && (r = read_id(envelope.id, pool, &request->id, error)) < 0)
        return r;
    if (fds_rc < 0)
        return fds_rc;
    if (!gb_json_is(envelope.jsonrpc, "2.0"))
        return gb_fail(error, GPUBUF_E_REQUEST, "jsonrpc: expected \"2.0\"");
    r = gb_json_string(envelope.method, 0, &method_path, pool, &request->method, error);
    if (r < 0)
        return recode(r, GPUBUF_E_REQUEST, error);
    if (envelope.params.text && gb_json_type(envelope.params) != GB_JSON_OBJECT)
        return gb_fail_at(error, &params_path, "expected an object, found %s",
                          gb_json_type_name(gb_json_type(envelope.params)));
    request->params = envelope.params;
    return 0;
}

/* ---- reading replies and notifications ---- */

static int read_notification(const struct envelope *envelope, struct gb_pool *pool,
                             struct gb_rpc_message *message, struct gb_error *error)
{
    if (envelope->id.text || envelope->result.text || envelope->error.text)
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "method: expected no id, result or error beside it");
    if (envelope->params.text && gb_json_type(envelope->params) != GB_JSON_OBJECT)
        return gb_fail_at(error, &params_path, "expected an object, found %s",
                          gb_json_type_name(gb_json_type(envelope->params)));
    message->params = envelope->params;
    return gb_json_string(envelope->method, 0, &method_path, pool, &message->method, error);
}

static int read_reply(const struct envelope *envelope, struct gb_rpc_message *message,
                      struct gb_error *error)
{
    if (!envelope->id.text)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "expected an id or a method");
    if ((!envelope->result.text) == (!envelope->error.text))
        return gb_fail(error, GPUBUF_E_PROTOCOL, "expected a result or an error, and not both");
    if (envelope->error.text && gb_json_type(envelope->error) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "error: expected an object, found %s",
                       gb_json_type_name(gb_json_type(envelope->error)));
    message->result = envelope->result;
    message->error = envelope->error;
    if (gb_json_type(envelope->id) == GB_JSON_NULL)
        return 0;
    return gb_json_uint(envelope->id, 1, GB_LIMIT(integer), &id_path, &message->id, error);
}

int gb_rpc_read_message(const char *line, size_t length, struct gb_pool *pool,
                        struct gb_rpc_message *message, struct gb_error *error)
{
    *message = (struct gb_rpc_message){0};
    struct gb_json value;
    struct envelope envelope = {0};
    int r = gb_json_check(line, length, pool, &value, error);
    if (r == GPUBUF_E_PARSE)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "the peer's message is not JSON: %s",
                       error ? error->message : "");
    if (r < 0)
        return r;
    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "expected a message, which is an object, found %s",
                       gb_json_type_name(gb_json_type(value)));
    r = gb_json_read(value, message_fields, COUNT(message_fields), GB_UNKNOWN_IGNORE, NULL, pool,
                     &envelope, NULL, error);
    if (r < 0)
        return recode(r, GPUBUF_E_PROTOCOL, error);
    if (!gb_json_is(envelope.jsonrpc, "2.0"))
        return gb_fail(error, GPUBUF_E_PROTOCOL, "jsonrpc: expected \"2.0\"");
    r = read_fds(envelope.fds, &message->fds, error);
    if (r == 0 && envelope.method.text)
        r = read_notification(&envelope, pool, message, error);
    else if (r == 0)
        r = read_reply(&envelope, message, error);
    return recode(r, GPUBUF_E_PROTOCOL, error);
}

struct wire_error {
    int64_t code;
    struct gb_string message;
    struct gb_json data;
};

struct wire_data {
    struct gb_string name;
};

int gb_rpc_read_error(struct gb_json value, struct gb_pool *pool, struct gb_error *error)
{
    static const struct gb_field error_fields[] = {
        GB_FIELD(struct wire_error, code, GB_FIELD_INT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct wire_error, message, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct wire_error, data, GB_FIELD_OBJECT, 0, 0, 0),
    };
    static const struct gb_field data_fields[] = {
        GB_FIELD(struct wire_data, name, GB_FIELD_STRING, 0, 0, 0),
    };
    static const struct gb_path error_path = {.key = "error"};
    static const struct gb_path data_path = {.up = &error_path, .key = "data"};
    struct wire_error wire = {0};
    struct wire_data data = {0};
    int r = gb_json_read(value, error_fields, COUNT(error_fields), GB_UNKNOWN_IGNORE, &error_path,
                         pool, &wire, NULL, error);

    if (r == 0)
        r = gb_json_read(wire.data, data_fields, COUNT(data_fields), GB_UNKNOWN_IGNORE, &data_path,
                         pool, &data, NULL, error);
    if (r < 0)
        return recode(r, GPUBUF_E_PROTOCOL, error);

    bool known = wire.code <= -32000 && wire.code >= INT32_MIN &&
                 strcmp(gb_error_kind((int)wire.code), "unknown") != 0;
    int code = known ? (int)wire.code : GPUBUF_E_INTERNAL;
    gb_fail(error, code, "%s", wire.message.text);
    if (error && data.name.text) {
        size_t length = data.name.length;
        if (length >= sizeof(error->name))
            length = gb_utf8_trim(data.name.text, sizeof(error->name) - 1);
        memcpy(error->name, data.name.text, length);
        error->name[length] = '\0';
    }
    return code;
}

/* ---- writing ---- */

static void write_fds(struct gb_writer *writer, unsigned fds)
{
    if (fds == 0)
        return;
    GB_WRITE_UINT(writer, ",\"fds\":", fds);
}

static void write_id(struct gb_writer *writer, struct gb_string id)
{
    GB_WRITE_LITERAL(writer, "{\"jsonrpc\":\"2.0\",\"id\":");
    if (id.text)
        gb_write(writer, id.text, id.length);
    else
        GB_WRITE_LITERAL(writer, "null");
}

void gb_rpc_begin_result(struct gb_writer *writer, struct gb_string id, unsigned fds)
{
    write_id(writer, id);
    write_fds(writer, fds);
    GB_WRITE_LITERAL(writer, ",\"result\":");
}

void gb_rpc_begin_request(struct gb_writer *writer, uint64_t id, const char *method, unsigned fds)
{
    GB_WRITE_UINT(writer, "{\"jsonrpc\":\"2.0\",\"id\":", id);
    GB_WRITE_LITERAL(writer, ",\"method\":");
    gb_write_cstring(writer, method);
    write_fds(writer, fds);
    GB_WRITE_LITERAL(writer, ",\"params\":");
}

void gb_rpc_begin_notification(struct gb_writer *writer, const char *method, unsigned fds)
{
    GB_WRITE_LITERAL(writer, "{\"jsonrpc\":\"2.0\",\"method\":");
    gb_write_cstring(writer, method);
    write_fds(writer, fds);
    GB_WRITE_LITERAL(writer, ",\"params\":");
}

void gb_rpc_end(struct gb_writer *writer)
{
    GB_WRITE_LITERAL(writer, "}\n");
}

static void write_data_member(struct gb_writer *writer, const char *key, const char *value)
{
    gb_write_char(writer, ',');
    gb_write_cstring(writer, key);
    gb_write_char(writer, ':');
    gb_write_cstring(writer, value);
}

/* A client that reads "out of memory" must learn that it is the daemon's. */
static const char *message_of(const struct gb_error *error)
{
    bool memory = error->code == GPUBUF_E_NO_MEMORY && strcmp(error->message, "out of memory") == 0;

    return memory ? "the daemon is out of memory" : error->message;
}

void gb_rpc_write_error_value(struct gb_writer *writer, const struct gb_error *error)
{
    /* Codes above -32000 are the library's own and have no place on the wire. */
    int code = error->code <= -32000 ? error->code : GPUBUF_E_INTERNAL;

    GB_WRITE_LITERAL(writer, "{\"code\":");
    gb_write_int(writer, code);
    GB_WRITE_LITERAL(writer, ",\"message\":");
    gb_write_cstring(writer, message_of(error));
    GB_WRITE_LITERAL(writer, ",\"data\":{\"kind\":");
    gb_write_cstring(writer, gb_error_kind(code));
    if (error->name[0] != '\0')
        write_data_member(writer, "name", error->name);
    if (error->limit)
        write_data_member(writer, "limit", error->limit);
    if (error->cuda)
        write_data_member(writer, "cuda", error->cuda);
    GB_WRITE_LITERAL(writer, "}}");
}

void gb_rpc_write_error(struct gb_writer *writer, struct gb_string id, const struct gb_error *error)
{
    write_id(writer, id);
    GB_WRITE_LITERAL(writer, ",\"error\":");
    gb_rpc_write_error_value(writer, error);
    gb_rpc_end(writer);
}
