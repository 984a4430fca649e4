/* The table of methods against protocol.json, and `describe` against both. */

#include <cjson/cJSON.h>

#define DEMAND(condition) assert_true(condition)
#include "tests/cases.h"

#include "inside.h"

extern const char gb_protocol_json[];
extern const size_t gb_protocol_json_length;

static cJSON *root;
static const cJSON *described; /* the methods */

static int parse(void **state)
{
    root = cJSON_ParseWithLength(gb_protocol_json, gb_protocol_json_length);
    described = cJSON_GetObjectItemCaseSensitive(root, "methods");
    return cJSON_IsArray(described) ? 0 : -1;
}

static int forget(void **state)
{
    cJSON_Delete(root);
    return 0;
}

static const cJSON *described_method(size_t i)
{
    return cJSON_GetArrayItem(described, (int)i);
}

static const char *text_of(const cJSON *object, const char *member)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, member));
}

/* A member's number, or `absent`. */
static double number_of(const cJSON *object, const char *member, double absent)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, member);

    return cJSON_IsNumber(item) ? item->valuedouble : absent;
}

static const cJSON *described_param(const cJSON *method, const char *name)
{
    const cJSON *param;

    cJSON_ArrayForEach(param, cJSON_GetObjectItemCaseSensitive(method, "params"))
    {
        if (strcmp(text_of(param, "name"), name) == 0)
            return param;
    }
    return NULL;
}

/* ---- the table ---- */

TEST(test_methods_in_order)
{
    assert_int_equal(gb_method_count(), cJSON_GetArraySize(described));
    for (size_t i = 0; i < gb_method_count(); i++)
        assert_string_equal(gb_method_at(i)->name, text_of(described_method(i), "name"));
}

TEST(test_rights_and_descriptors)
{
    for (size_t i = 0; i < gb_method_count(); i++) {
        const struct gb_method *method = gb_method_at(i);
        const cJSON *entry = described_method(i);
        const char *fds = text_of(entry, "fds");

        assert_int_equal(!!(method->flags & GB_METHOD_ADMIN), text_of(entry, "rights") != NULL);
        assert_non_null(fds);
        if (!!(method->flags & GB_METHOD_FDS) != (strstr(fds, "request") != NULL))
            fail_msg("%s: fds is \"%s\"", method->name, fds);
    }
}

static bool type_matches(enum gb_field_type type, const char *name)
{
    switch (type) {
    case GB_FIELD_UINT:
    case GB_FIELD_INT:
        return strcmp(name, "integer") == 0;
    case GB_FIELD_BOOL:
        return strcmp(name, "boolean") == 0;
    case GB_FIELD_STRING:
        return strcmp(name, "string") == 0;
    case GB_FIELD_OBJECT:
        return strcmp(name, "object") == 0 || strcmp(name, "layout") == 0;
    case GB_FIELD_ARRAY:
        return strncmp(name, "array", 5) == 0;
    default:
        return false;
    }
}

TEST(test_params)
{
    for (size_t i = 0; i < gb_method_count(); i++) {
        const struct gb_method *method = gb_method_at(i);
        const cJSON *entry = described_method(i);

        assert_int_equal(method->field_count,
                         cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(entry, "params")));
        for (size_t j = 0; j < method->field_count; j++) {
            const struct gb_field *field = &method->fields[j];
            const cJSON *param = described_param(entry, field->name);

            if (!param)
                fail_msg("%s: param %s is not described", method->name, field->name);
            if (!type_matches(field->type, text_of(param, "type")))
                fail_msg("%s.%s: is described as %s", method->name, field->name,
                         text_of(param, "type"));
            if (!!(field->flags & GB_FIELD_REQUIRED) !=
                cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(param, "required")))
                fail_msg("%s.%s: required or not", method->name, field->name);
        }
    }
}

/* ---- ranges: what the server does at their ends ---- */

static struct inside inside;
static struct peer peer;

static char *ask(const char *method, const char *param, const char *value, size_t length)
{
    char *request = malloc(length + 256), *line = NULL;
    size_t at;

    assert_non_null(request);
    at = (size_t)sprintf(
        request, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"%s\":", method,
        param);
    memcpy(request + at, value, length);
    strcpy(request + at + length, "}}\n");
    for (size_t sent = 0, all = at + length + 3; sent < all;) {
        sent += peer_send_bytes(&peer, request + sent, all - sent, NULL, 0);
        inside_turn(&inside);
    }
    for (int turn = 0; turn < 8 && !line; turn++) {
        inside_turn(&inside);
        line = peer_line(&peer);
        if (line && strstr(line, "\"method\":\"event\"")) { /* of a watch that was asked for */
            free(line);
            line = NULL;
        }
    }
    free(request);
    assert_non_null(line);
    return line;
}

/* Whether the value by itself, with nothing else given, is refused as this param's. */
static bool refuses(const char *method, const char *param, const char *value, size_t length)
{
    char *line = ask(method, param, value, length), where[64];
    bool refused;

    snprintf(where, sizeof(where), "\"params.%s: ", param);
    refused =
        strstr(line, where) && strstr(line, "\"kind\":\"invalid\"") && !strstr(line, ": missing");
    free(line);
    return refused;
}

static void check_integer(const char *method, const cJSON *param)
{
    const char *name = text_of(param, "name");
    double largest = 4503599627370495.0;
    double min = number_of(param, "min", 0), max = number_of(param, "max", largest);
    char value[32];
    int length;

    if (strcmp(method, "hello") == 0) /* another protocol is not wrong, but unsupported */
        return;
    if (min > 0) {
        length = snprintf(value, sizeof(value), "%.0f", min - 1);
        if (!refuses(method, name, value, (size_t)length))
            fail_msg("%s.%s: takes %s", method, name, value);
    }
    length = snprintf(value, sizeof(value), "%.0f", max + 1);
    if (!refuses(method, name, value, (size_t)length))
        fail_msg("%s.%s: takes %s", method, name, value);
    length = snprintf(value, sizeof(value), "%.0f", max);
    if (refuses(method, name, value, (size_t)length))
        fail_msg("%s.%s: refuses %s", method, name, value);
}

static void check_string(const char *method, const cJSON *param)
{
    const char *name = text_of(param, "name");
    double max = number_of(param, "max", 0);
    size_t length = (size_t)max;
    char value[512];

    if (length == 0 || strcmp(name, "name") == 0) /* names are checked where they are taken */
        return;
    value[0] = '"';
    memset(value + 1, 'x', length + 1);
    value[length + 1] = '"';
    if (refuses(method, name, value, length + 2))
        fail_msg("%s.%s: refuses %zu bytes", method, name, length);
    value[length + 1] = 'x';
    value[length + 2] = '"';
    if (!refuses(method, name, value, length + 3))
        fail_msg("%s.%s: takes %zu bytes", method, name, length + 1);
}

static void check_array(const char *method, const cJSON *param)
{
    const char *name = text_of(param, "name");
    size_t max = (size_t)number_of(param, "max", 0);
    char *value;

    if (max == 0)
        return;
    value = malloc(2 * max + 8);
    assert_non_null(value);
    value[0] = '[';
    for (size_t i = 0; i <= max; i++)
        memcpy(value + 1 + 2 * i, "0,", 2);
    value[2 * max + 2] = ']';
    if (!refuses(method, name, value, 2 * max + 3))
        fail_msg("%s.%s: takes %zu elements", method, name, max + 1);
    free(value);
}

TEST(test_ranges)
{
    inside_begin(&inside, (const char *const[]){"--device", "host:8M", NULL});
    assert_true(peer_connect(&inside, &peer));
    for (size_t i = 0; i < gb_method_count(); i++) {
        const cJSON *entry = described_method(i), *param;
        const char *method = text_of(entry, "name");

        cJSON_ArrayForEach(param, cJSON_GetObjectItemCaseSensitive(entry, "params"))
        {
            const char *type = text_of(param, "type");

            if (strcmp(type, "integer") == 0)
                check_integer(method, param);
            else if (strcmp(type, "string") == 0)
                check_string(method, param);
            else if (strncmp(type, "array", 5) == 0)
                check_array(method, param);
        }
    }
    peer_close(&peer);
    inside_empty(&inside);
    inside_end(&inside);
}

TEST(test_describe)
{
    cJSON *answer;
    char *line;

    inside_begin(&inside, (const char *const[]){"--device", "host:8M", NULL});
    assert_true(peer_connect(&inside, &peer));
    peer_send(&peer, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"describe\"}\n");
    inside_turn(&inside);
    line = peer_line(&peer);
    assert_non_null(line);
    answer = cJSON_Parse(line);
    free(line);
    assert_true(cJSON_Compare(cJSON_GetObjectItemCaseSensitive(answer, "result"), root, true));
    cJSON_Delete(answer);
    peer_close(&peer);
    inside_empty(&inside);
    inside_end(&inside);
}

RUN_TESTS(parse, forget)
