/* protocol.json against what it describes: limits.h, the errors of gpubuf.h, the tables of types
   and of methods. */

#include <cjson/cJSON.h>

#include "tests/cases.h"

#include "is_json.h"

#include "daemon/methods/call.h"
#include "daemon/methods/methods.h"
#include "gpubuf.h"
#include "proto/base/limits.h"
#include "proto/layout/dtype.h"

/* The file as the daemon has it built in. */
extern const char gb_protocol_json[];
extern const size_t gb_protocol_json_length;

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static cJSON *root;

static int parse(void **state)
{
    root = cJSON_ParseWithLength(gb_protocol_json, gb_protocol_json_length);
    return root ? 0 : -1;
}

static int forget(void **state)
{
    cJSON_Delete(root);
    return 0;
}

/* ---- looking things up; what is missing fails the test ---- */

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    if (!item)
        fail_msg("no member \"%s\" in %s", name, cJSON_PrintUnformatted(object));
    return item;
}

static const char *text(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);

    if (!cJSON_IsString(item))
        fail_msg("\"%s\" is no string in %s", name, cJSON_PrintUnformatted(object));
    return item->valuestring;
}

static const cJSON *array(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);

    if (!cJSON_IsArray(item))
        fail_msg("\"%s\" is no array in %s", name, cJSON_PrintUnformatted(object));
    return item;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);

    if (!cJSON_IsNumber(item))
        fail_msg("\"%s\" is no number in %s", name, cJSON_PrintUnformatted(object));
    return item->valuedouble;
}

static bool truth(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);

    if (!cJSON_IsBool(item))
        fail_msg("\"%s\" is neither true nor false in %s", name, cJSON_PrintUnformatted(object));
    return cJSON_IsTrue(item);
}

/* The element of `list` whose member `key` is `value`; NULL if there is none. */
static const cJSON *find(const cJSON *list, const char *key, const char *value)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        if (strcmp(text(item, key), value) == 0)
            return item;
    }
    return NULL;
}

static bool contains(const cJSON *strings, const char *value)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, strings)
    {
        if (cJSON_IsString(item) && strcmp(item->valuestring, value) == 0)
            return true;
    }
    return false;
}

static void assert_unique(const cJSON *list, const char *key)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, list) assert_ptr_equal(find(list, key, text(item, key)), item);
}

/* ---- the tests ---- */

/* It goes out as one message: our own strict checker takes it, and it is small and ASCII. */
TEST(test_text)
{
    assert_true(gb_protocol_json_length < 61440);
    for (size_t i = 0; i < gb_protocol_json_length; i++) {
        unsigned char c = (unsigned char)gb_protocol_json[i];
        assert_true(c == '\n' || (c >= 0x20 && c < 0x7f));
    }
    assert_true(is_json(gb_protocol_json, gb_protocol_json_length));
    assert_int_equal(number(root, "protocol"), GPUBUF_PROTOCOL);
}

TEST(test_limits)
{
    static const struct {
        const char *name;
        long long value;
        const char *text;
    } limits[] = {
#define LIMIT_ROW(name, value, text) {#name, value, text},
        GB_LIMIT_MAP(LIMIT_ROW)
#undef LIMIT_ROW
    };
    const cJSON *list = array(root, "limits");

    assert_int_equal(cJSON_GetArraySize(list), COUNT(limits));
    for (size_t i = 0; i < COUNT(limits); i++) {
        const cJSON *item = find(list, "name", limits[i].name);

        if (!item)
            fail_msg("limit %s is not described", limits[i].name);
        assert_true(number(item, "value") == (double)limits[i].value);
        assert_string_equal(text(item, "text"), limits[i].text);
    }
}

TEST(test_errors)
{
    static const struct {
        const char *kind;
        int code;
    } errors[] = {
#define ERROR_ROW(name, code, kind, text) {kind, code},
        GPUBUF_ERROR_MAP(ERROR_ROW)
#undef ERROR_ROW
    };
    const cJSON *list = array(root, "errors");
    int on_the_wire = 0;

    for (size_t i = 0; i < COUNT(errors); i++) {
        const cJSON *item = find(list, "kind", errors[i].kind);

        assert_int_equal(item != NULL, errors[i].code <= -32000);
        if (item) {
            on_the_wire++;
            assert_int_equal(number(item, "code"), errors[i].code);
            assert_true(text(item, "when")[0]);
        }
    }
    assert_int_equal(cJSON_GetArraySize(list), on_the_wire);
}

/* NULL in C is null in JSON. */
static void assert_text_or_null(const cJSON *object, const char *name, const char *expected)
{
    if (expected)
        assert_string_equal(text(object, name), expected);
    else
        assert_true(cJSON_IsNull(member(object, name)));
}

TEST(test_dtypes)
{
    const cJSON *list = array(root, "dtypes");

    assert_int_equal(cJSON_GetArraySize(list), GB_TYPE_COUNT);
    for (unsigned type = 0; type < GB_TYPE_COUNT; type++) {
        const struct gb_type_info *info = gb_type_info((enum gb_type)type);
        const cJSON *item = find(list, "name", info->name);
        struct gb_dtype dtype;

        if (!item)
            fail_msg("dtype %s is not described", info->name);
        assert_int_equal(number(item, "bits"), info->bits);
        assert_int_equal(number(item, "offset_bytes"), info->offset_bytes);
        assert_int_equal(truth(item, "data"), info->has_data);
        assert_int_equal(truth(item, "mask"), info->has_mask);
        assert_int_equal(number(item, "children"), info->children);
        assert_int_equal(truth(item, "array"), info->array);
        assert_text_or_null(item, "arrow", info->arrow);
        assert_text_or_null(item, "numpy", info->numpy);
        assert_text_or_null(item, "safetensors", info->safetensors);
        if (info->dlpack_code == 255)
            assert_true(cJSON_IsNull(member(item, "dlpack")));
        else
            assert_int_equal(number(item, "dlpack"), info->dlpack_code);
        /* A method with parameters does not go without. */
        assert_int_equal(cJSON_HasObjectItem(item, "parameters"),
                         !gb_dtype_parse(info->name, strlen(info->name), &dtype));
    }
}

static const char *const basic_types[] = {"string", "integer", "boolean", "object",
                                          "array",  "dtype",   "null"};

static bool is_type(const char *name, size_t length)
{
    char copy[32];

    assert_true(length < sizeof(copy));
    memcpy(copy, name, length);
    copy[length] = '\0';
    for (size_t i = 0; i < COUNT(basic_types); i++) {
        if (strcmp(copy, basic_types[i]) == 0)
            return true;
    }
    return find(array(root, "structures"), "name", copy) != NULL;
}

/* "integer", "array of segment", "array of lease or null": all of them known. */
static void check_type(const cJSON *item)
{
    const char *type = text(item, "type"), * or = strstr(type, " or ");

    if (strncmp(type, "array of ", 9) == 0)
        type += 9;
    if (!is_type(type, or ? (size_t)(or -type) : strlen(type)) ||
        (or &&!is_type(or +4, strlen(or +4))))
        fail_msg("\"%s\" is no type", text(item, "type"));
}

static void check_members(const cJSON *list, bool params)
{
    const cJSON *item;

    assert_unique(list, "name");
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *fallback = cJSON_GetObjectItemCaseSensitive(item, "default");
        const cJSON *values = cJSON_GetObjectItemCaseSensitive(item, "values");

        assert_true(text(item, "name")[0] && text(item, "text")[0]);
        check_type(item);
        if (params && truth(item, "required"))
            assert_null(fallback);
        if (fallback && cJSON_IsNumber(fallback)) {
            assert_string_equal(text(item, "type"), "integer");
            if (cJSON_HasObjectItem(item, "min"))
                assert_true(number(item, "min") <= fallback->valuedouble);
            if (cJSON_HasObjectItem(item, "max"))
                assert_true(number(item, "max") >= fallback->valuedouble);
        }
        if (fallback && values)
            assert_true(contains(values, fallback->valuestring));
    }
}

TEST(test_methods)
{
    const cJSON *list = array(root, "methods"), *method;

    assert_unique(list, "name");
    cJSON_ArrayForEach(method, list)
    {
        const cJSON *kind;

        assert_string_equal(text(method, "since"), "1");
        assert_true(text(method, "text")[0]);
        assert_true(strcmp(text(method, "fds"), "none") == 0 ||
                    strcmp(text(method, "fds"), "request") == 0 ||
                    strcmp(text(method, "fds"), "reply") == 0);
        check_members(array(method, "params"), true);
        check_members(array(method, "result"), false);
        cJSON_ArrayForEach(kind, array(method, "errors"))
        {
            assert_non_null(find(array(root, "errors"), "kind", kind->valuestring));
            assert_false(contains(array(root, "common_errors"), kind->valuestring));
        }
    }
}

/* The daemon's table has what is described and no more. That it holds to types, ranges and what is
   required is tried by tests/integration/test_params.py. */
TEST(test_methods_of_the_daemon)
{
    const cJSON *list = array(root, "methods");

    assert_int_equal(gb_method_count(), cJSON_GetArraySize(list));
    for (size_t i = 0; i < gb_method_count(); i++) {
        const struct gb_method *method = gb_method_at(i);
        const cJSON *entry = cJSON_GetArrayItem(list, (int)i), *params = array(entry, "params");

        assert_string_equal(method->name, text(entry, "name"));
        assert_int_equal(!!(method->flags & GB_METHOD_ADMIN), cJSON_HasObjectItem(entry, "rights"));
        assert_int_equal(!!(method->flags & GB_METHOD_FDS),
                         strcmp(text(entry, "fds"), "request") == 0);
        assert_int_equal(method->field_count, cJSON_GetArraySize(params));
        for (size_t j = 0; j < method->field_count; j++)
            if (!find(params, "name", method->fields[j].name))
                fail_msg("%s: param %s is not described", method->name, method->fields[j].name);
    }
}

TEST(test_notifications_and_structures)
{
    const cJSON *item;

    assert_unique(array(root, "notifications"), "name");
    cJSON_ArrayForEach(item, array(root, "notifications"))
        check_members(array(item, "params"), false);
    assert_unique(array(root, "structures"), "name");
    cJSON_ArrayForEach(item, array(root, "structures"))
        check_members(array(item, "members"), false);
    cJSON_ArrayForEach(item, array(root, "common_errors"))
        assert_non_null(find(array(root, "errors"), "kind", item->valuestring));
}

/* The ranges of params that are limits of limits.h. */
TEST(test_ranges_are_limits)
{
    static const struct {
        const char *method, *param;
        long long max;
    } rows[] = {
        {"create", "name", GB_LIMIT(name_bytes)}, {"create", "wait_ms", GB_LIMIT(wait_ms)},
        {"open", "names", GB_LIMIT(names)},       {"open", "wait_ms", GB_LIMIT(wait_ms)},
        {"register", "handles", GB_LIMIT(fds)},   {"list", "limit", GB_LIMIT(list)},
        {"delete", "names", GB_LIMIT(names)},     {"seal", "lease", GB_LIMIT(integer)},
        {"hello", "protocol", GPUBUF_PROTOCOL},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        const cJSON *method = find(array(root, "methods"), "name", rows[i].method);
        const cJSON *param = find(array(method, "params"), "name", rows[i].param);

        assert_non_null(param);
        assert_true(number(param, "max") == (double)rows[i].max);
    }
}

RUN_TESTS(parse, forget)
