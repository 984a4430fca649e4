/* rpc: requests, replies, notifications and errors, both ways. */
#include "tests/cases.h"

#include "proto/wire/rpc.h"

/* A message read from a block of exactly its size. */
struct reading {
    char *line;
    size_t length;
    struct gb_pool pool;
    struct gb_rpc_request request;
    struct gb_rpc_message message;
    struct gb_error error;
};

static void keep_line(struct reading *reading, const char *line)
{
    free(reading->line);
    reading->length = strlen(line);
    reading->line = malloc(reading->length > 0 ? reading->length : 1);
    assert_non_null(reading->line);
    memcpy(reading->line, line, reading->length);
}

static int read_request(struct reading *reading, const char *line)
{
    keep_line(reading, line);
    return gb_rpc_read_request(reading->line, reading->length, &reading->pool, &reading->request,
                               &reading->error);
}

static int read_message(struct reading *reading, const char *line)
{
    keep_line(reading, line);
    return gb_rpc_read_message(reading->line, reading->length, &reading->pool, &reading->message,
                               &reading->error);
}

static void reading_end(struct reading *reading)
{
    free(reading->line);
    gb_pool_end(&reading->pool);
    *reading = (struct reading){0};
}

static void assert_text(struct gb_string text, const char *expected)
{
    if (expected == NULL) {
        assert_null(text.text);
        return;
    }
    assert_non_null(text.text);
    assert_int_equal(text.length, strlen(expected));
    assert_memory_equal(text.text, expected, text.length);
}

static void assert_span(struct gb_json span, const char *expected)
{
    assert_text((struct gb_string){span.text, span.text ? gb_json_length(span) : 0}, expected);
}

/* ---- requests ---- */

TEST(test_requests)
{
    static const struct {
        const char *line, *id, *method, *params;
        uint64_t fds;
    } good[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"open\",\"params\":{\"name\":\"a\"}}", "1",
         "open", "{\"name\":\"a\"}", 0},
        {"{\"method\":\"m\",\"jsonrpc\":\"2.0\"}", NULL, "m", NULL, 0},
        {" {\"fds\": 16 , \"params\":{ }, \"id\" : \"x\\\"y\" , "
         "\"method\":\"m\",\"jsonrpc\":\"2.0\"} ",
         "\"x\\\"y\"", "m", "{ }", 16},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"\"}", "null", "", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":-4503599627370495,\"method\":\"\\u006dé\"}",
         "-4503599627370495", "mé", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":"
         "\"0123456789012345678901234567890123456789012345678901234567890123\",\"method\":\"m\"}",
         "\"0123456789012345678901234567890123456789012345678901234567890123\"", "m", NULL, 0},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct reading r = {0};
        if (read_request(&r, good[i].line) < 0)
            fail_msg("%s: %s", good[i].line, r.error.message);
        assert_text(r.request.id, good[i].id);
        assert_string_equal(r.request.method.text, good[i].method);
        assert_int_equal(r.request.method.length, strlen(good[i].method));
        assert_span(r.request.params, good[i].params);
        assert_int_equal(r.request.fds, good[i].fds);
        reading_end(&r);
    }
}

TEST(test_bad_requests)
{
    static const struct {
        const char *line;
        int code;
        const char *message;
        const char *id; /* what can be said of it all the same */
        uint64_t fds;
    } bad[] = {
        {"", GPUBUF_E_PARSE, "byte 0: expected a value", NULL, 0},
        {"{\"id\":1,}", GPUBUF_E_PARSE, "byte 8: expected a member's name in quotes", NULL, 0},
        {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]", GPUBUF_E_REQUEST,
         "batches are not accepted: send one request a line", NULL, 0},
        {"17", GPUBUF_E_REQUEST, "expected a request, which is an object, found a number", NULL, 0},
        {"{\"id\":5,\"method\":\"m\"}", GPUBUF_E_REQUEST, "jsonrpc: expected \"2.0\"", "5", 0},
        {"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"m\"}", GPUBUF_E_REQUEST,
         "jsonrpc: expected \"2.0\"", "5", 0},
        {"{\"jsonrpc\":2.0,\"id\":5,\"method\":\"m\",\"fds\":1}", GPUBUF_E_REQUEST,
         "jsonrpc: expected \"2.0\"", "5", 1},
        {"{\"jsonrpc\":\"2.0\",\"id\":5,\"fds\":2}", GPUBUF_E_REQUEST,
         "method: expected a string, found nothing", "5", 2},
        {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":7}", GPUBUF_E_REQUEST,
         "method: expected a string, found a number", "5", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"m\",\"params\":[],\"fds\":3}",
         GPUBUF_E_INVALID, "params: expected an object, found an array", "5", 3},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"param\":{},\"id\":5,\"fds\":4}", GPUBUF_E_INVALID,
         "param: unknown member", "5", 4},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"method\":\"m\",\"fds\":4,\"id\":\"a\"}",
         GPUBUF_E_INVALID, "method: occurs twice", "\"a\"", 4},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\",\"fds\":4}", GPUBUF_E_INVALID,
         "id: occurs twice", "1", 4},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\",\"fds\":1}", GPUBUF_E_REQUEST,
         "id: expected an integer without fraction or exponent, found 1.5", NULL, 1},
        {"{\"jsonrpc\":\"2.0\",\"id\":4503599627370496,\"method\":\"m\"}", GPUBUF_E_REQUEST,
         "id: expected an integer from -4503599627370495 to 4503599627370495, found "
         "4503599627370496",
         NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"m\"}", GPUBUF_E_REQUEST,
         "id: expected an integer, a string or null, found an object", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"m\"}", GPUBUF_E_REQUEST,
         "id: expected an integer, a string or null, found a boolean", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":"
         "\"01234567890123456789012345678901234567890123456789012345678901234\"}",
         GPUBUF_E_REQUEST, "id: expected a string of at most 64 bytes, found 65", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"fds\":17}", GPUBUF_E_INVALID,
         "fds: expected an integer from 0 to 16, found 17", "1", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"fds\":\"1\"}", GPUBUF_E_INVALID,
         "fds: expected an integer, found a string", "1", 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct reading r = {0};
        assert_int_equal(read_request(&r, bad[i].line), bad[i].code);
        assert_int_equal(r.error.code, bad[i].code);
        assert_string_equal(r.error.message, bad[i].message);
        assert_text(r.request.id, bad[i].id);
        assert_int_equal(r.request.fds, bad[i].fds);
        assert_int_equal(gb_rpc_read_request(r.line, r.length, &r.pool, &r.request, NULL),
                         bad[i].code);
        reading_end(&r);
    }
}

/* ---- replies and notifications ---- */

TEST(test_messages)
{
    static const struct {
        const char *line;
        uint64_t id;
        const char *method, *params, *result, *error;
        uint64_t fds;
    } good[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}", 7, NULL, NULL, "{}", NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"fds\":2,\"result\":null,\"new\":1}", 7, NULL, NULL,
         "null", NULL, 2},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-1}}", 0, NULL, NULL, NULL,
         "{\"code\":-1}", 0},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"a\":1}}", 0, "event", "{\"a\":1}",
         NULL, NULL, 0},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"event\"}", 0, "event", NULL, NULL, NULL, 0},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct reading r = {0};
        if (read_message(&r, good[i].line) < 0)
            fail_msg("%s: %s", good[i].line, r.error.message);
        assert_int_equal(r.message.id, good[i].id);
        if (good[i].method != NULL)
            assert_string_equal(r.message.method.text, good[i].method);
        else
            assert_null(r.message.method.text);
        assert_span(r.message.params, good[i].params);
        assert_span(r.message.result, good[i].result);
        assert_span(r.message.error, good[i].error);
        assert_int_equal(r.message.fds, good[i].fds);
        reading_end(&r);
    }
    static const char *const bad[][2] = {
        {"{", "the peer's message is not JSON: byte 1: expected a member's name in quotes"},
        {"[]", "expected a message, which is an object, found an array"},
        {"{\"id\":1,\"result\":{}}", "jsonrpc: expected \"2.0\""},
        {"{\"jsonrpc\":\"2.0\"}", "expected an id or a method"},
        {"{\"jsonrpc\":\"2.0\",\"result\":{}}", "expected an id or a method"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", "expected a result or an error, and not both"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}",
         "expected a result or an error, and not both"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":1}", "error: expected an object, found a number"},
        {"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":1}",
         "id: expected an integer from 1 to 4503599627370495, found 0"},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":1}",
         "id: expected an integer, found a string"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"result\":1}", "result: occurs twice"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"fds\":17}",
         "fds: expected an integer from 0 to 16, found 17"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
         "method: expected no id, result or error beside it"},
        {"{\"jsonrpc\":\"2.0\",\"method\":1}", "method: expected a string, found a number"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":1}",
         "params: expected an object, found a number"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct reading r = {0};
        assert_int_equal(read_message(&r, bad[i][0]), GPUBUF_E_PROTOCOL);
        assert_int_equal(r.error.code, GPUBUF_E_PROTOCOL);
        assert_string_equal(r.error.message, bad[i][1]);
        assert_int_equal(gb_rpc_read_message(r.line, r.length, &r.pool, &r.message, NULL),
                         GPUBUF_E_PROTOCOL);
        reading_end(&r);
    }
}

/* ---- writing, and reading it back ---- */

static void assert_written(struct gb_writer *writer, const char *expected)
{
    char *text = gb_writer_take(writer, NULL);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

TEST(test_writing)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_rpc_begin_request(&writer, 3, "open", 0);
    GB_WRITE_LITERAL(&writer, "{}");
    gb_rpc_end(&writer);
    assert_written(&writer, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"open\",\"params\":{}}\n");
    gb_rpc_begin_request(&writer, 3, "register", 1);
    GB_WRITE_LITERAL(&writer, "{}");
    gb_rpc_end(&writer);
    assert_written(&writer, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"register\",\"fds\":1,"
                            "\"params\":{}}\n");
    gb_rpc_begin_result(&writer, (struct gb_string){"\"a\"", 3}, 2);
    GB_WRITE_LITERAL(&writer, "{}");
    gb_rpc_end(&writer);
    assert_written(&writer, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"fds\":2,\"result\":{}}\n");
    gb_rpc_begin_result(&writer, (struct gb_string){0}, 0);
    GB_WRITE_LITERAL(&writer, "{}");
    gb_rpc_end(&writer);
    assert_written(&writer, "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n");
    gb_rpc_begin_notification(&writer, "event", 0);
    GB_WRITE_LITERAL(&writer, "{}");
    gb_rpc_end(&writer);
    assert_written(&writer, "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{}}\n");
}

static int write_and_read_error(const struct gb_error *sent, struct gb_error *received)
{
    struct reading r = {0};
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_rpc_write_error(&writer, (struct gb_string){"9", 1}, sent);
    assert_false(writer.failed);
    assert_int_equal(writer.data[writer.length - 1], '\n');
    writer.data[writer.length - 1] = '\0';
    assert_int_equal(read_message(&r, writer.data), 0);
    assert_int_equal(r.message.id, 9);
    int rc = gb_rpc_read_error(r.message.error, &r.pool, received);
    gb_writer_end(&writer);
    reading_end(&r);
    return rc;
}

TEST(test_errors)
{
    struct gb_error sent = {0}, received = {0};
    gb_fail(&sent, GPUBUF_E_NOT_FOUND, "no object \"%s\"\n", "été");
    memcpy(sent.name, "été", sizeof("été"));
    assert_int_equal(write_and_read_error(&sent, &received), GPUBUF_E_NOT_FOUND);
    assert_int_equal(received.code, GPUBUF_E_NOT_FOUND);
    assert_string_equal(received.message, sent.message);
    assert_string_equal(received.name, "été");
    assert_null(received.limit);

    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_fail_limit(&sent, "names", 4096, "too many");
    sent.cuda = "CUDA_ERROR_OUT_OF_MEMORY";
    gb_rpc_write_error(&writer, (struct gb_string){0}, &sent);
    assert_written(&writer,
                   "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32008,\"message\":"
                   "\"too many (the limit names is 4096)\",\"data\":{\"kind\":\"limit\","
                   "\"limit\":\"names\",\"cuda\":\"CUDA_ERROR_OUT_OF_MEMORY\"}}}\n");
    /* A code of the library's own becomes one of the protocol's. */
    gb_fail(&sent, GPUBUF_E_NO_MEMORY, "no memory");
    assert_int_equal(write_and_read_error(&sent, &received), GPUBUF_E_INTERNAL);
    assert_string_equal(received.message, "no memory");
    assert_string_equal(received.name, "");
}

TEST(test_odd_errors)
{
    static const struct {
        const char *text;
        int code;
        const char *message;
    } errors[] = {
        {"{\"code\":-32001,\"message\":\"m\"}", GPUBUF_E_NOT_FOUND, "m"},
        {"{\"code\":-32999,\"message\":\"m\",\"data\":{\"kind\":\"new\"}}", GPUBUF_E_INTERNAL, "m"},
        {"{\"code\":-1,\"message\":\"m\"}", GPUBUF_E_INTERNAL, "m"},
        {"{\"code\":-4294999297,\"message\":\"m\"}", GPUBUF_E_INTERNAL, "m"},
        {"{\"code\":5,\"message\":\"m\",\"x\":1}", GPUBUF_E_INTERNAL, "m"},
        {"{\"message\":\"m\"}", GPUBUF_E_PROTOCOL, "error.code: missing"},
        {"{\"code\":-32001}", GPUBUF_E_PROTOCOL, "error.message: missing"},
        {"{\"code\":-32001,\"message\":\"m\",\"data\":{\"name\":1}}", GPUBUF_E_PROTOCOL,
         "error.data.name: expected a string, found a number"},
    };
    struct gb_pool pool = {0};
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct gb_error error;
        struct gb_json value;
        assert_int_equal(
            gb_json_check(errors[i].text, strlen(errors[i].text), &pool, &value, &error), 0);
        assert_int_equal(gb_rpc_read_error(value, &pool, &error), errors[i].code);
        assert_int_equal(error.code, errors[i].code);
        assert_string_equal(error.message, errors[i].message);
        assert_int_equal(gb_rpc_read_error(value, &pool, NULL), errors[i].code);
    }
    /* A name that is too long is cut between characters. */
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"code\":-32001,\"message\":\"m\",\"data\":{\"name\":\"");
    for (int i = 0; i < 200; i++)
        GB_WRITE_LITERAL(&writer, "é");
    GB_WRITE_LITERAL(&writer, "\"}}");
    struct gb_json value;
    struct gb_error error;
    assert_int_equal(gb_json_check(writer.data, writer.length, &pool, &value, &error), 0);
    assert_int_equal(gb_rpc_read_error(value, &pool, &error), GPUBUF_E_NOT_FOUND);
    assert_int_equal(strlen(error.name), 254);
    gb_writer_end(&writer);
    gb_pool_end(&pool);
}

RUN_TESTS(NULL, NULL)
