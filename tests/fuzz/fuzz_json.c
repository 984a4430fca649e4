/*
 * json: what gb_json_check takes, cJSON takes too and reads alike; walking and reading stay inside
 * the text; what was read can be written and read back.
 */
#include <cjson/cJSON.h>

#include "demand.h"
#include "proto/wire/rpc.h"

struct thing {
    struct gb_string name;
    uint64_t count;
    int64_t shift;
    bool on;
    struct gb_json object, list, what;
};

static const struct gb_field fields[] = {
    GB_FIELD(struct thing, name, GB_FIELD_STRING, 0, 0, 20),
    GB_FIELD(struct thing, count, GB_FIELD_UINT, 0, 1, 1000),
    GB_FIELD(struct thing, shift, GB_FIELD_INT, 0, 0, 0),
    GB_FIELD(struct thing, on, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct thing, object, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct thing, list, GB_FIELD_ARRAY, 0, 0, 2),
    GB_FIELD(struct thing, what, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
};

/* Bytes of text must be written as a string that reads back as the same, if they are UTF-8. */
static void round_trip(const char *text, size_t length, struct gb_pool *pool)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_write_string(&writer, text, length);
    DEMAND(!writer.failed);
    struct gb_json value;
    struct gb_string string;
    DEMAND(gb_json_check(writer.data, writer.length, pool, &value, NULL) == 0);
    DEMAND(gb_json_string(value, 0, NULL, pool, &string, NULL) == 0);
    DEMAND(gb_utf8_valid(string.text, string.length));
    bool same = string.length == length && (length == 0 || memcmp(string.text, text, length) == 0);
    DEMAND(same == gb_utf8_valid(text, length));
    gb_writer_end(&writer);
}

static bool is_number(const cJSON *oracle, struct gb_json value)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_write(&writer, value.text, gb_json_length(value));
    char *text = gb_writer_take(&writer, NULL);
    DEMAND(text != NULL);
    double expected = strtod(text, NULL);
    free(text);
    int64_t integer;
    if (gb_json_int(value, INT64_MIN, INT64_MAX, NULL, &integer, NULL) == 0 &&
        (double)integer != expected)
        return false;
    return cJSON_IsNumber(oracle) && oracle->valuedouble == expected;
}

/* Compares a value with cJSON's, down to all it contains. */
static void compare(struct gb_json value, const cJSON *oracle, struct gb_pool *pool)
{
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    struct gb_string string;
    const cJSON *child = oracle->child;
    switch (gb_json_type(value)) {
    case GB_JSON_NULL:
        DEMAND(cJSON_IsNull(oracle));
        break;
    case GB_JSON_BOOL:
        DEMAND(cJSON_IsBool(oracle) && cJSON_IsTrue(oracle) == (value.text[0] == 't'));
        break;
    case GB_JSON_NUMBER:
        DEMAND(is_number(oracle, value));
        break;
    case GB_JSON_STRING:
        DEMAND(gb_json_string(value, 0, NULL, pool, &string, NULL) == 0);
        DEMAND(cJSON_IsString(oracle) && strcmp(oracle->valuestring, string.text) == 0);
        DEMAND(strlen(string.text) == string.length);
        round_trip(string.text, string.length, pool);
        break;
    case GB_JSON_ARRAY:
    case GB_JSON_OBJECT:
        DEMAND(gb_json_type(value) == GB_JSON_OBJECT ? cJSON_IsObject(oracle)
                                                     : cJSON_IsArray(oracle));
        for (; gb_json_next(&walk, &key, &item); child = child->next) {
            DEMAND(child != NULL);
            if (key.text != NULL) {
                DEMAND(gb_json_string(key, 0, NULL, pool, &string, NULL) == 0);
                DEMAND(strcmp(child->string, string.text) == 0);
            }
            compare(item, child, pool);
        }
        DEMAND(child == NULL);
        DEMAND(gb_json_count(value) == (size_t)cJSON_GetArraySize(oracle));
    }
}

static void read_table(struct gb_json value, enum gb_unknown unknown, struct gb_pool *pool)
{
    struct thing thing = {0};
    uint64_t present = 0;
    struct gb_error error = {0};
    int rc = gb_json_read(value, fields, sizeof(fields) / sizeof(fields[0]), unknown, NULL, pool,
                          &thing, &present, &error);
    DEMAND(rc == 0 || (rc == GPUBUF_E_INVALID && error.message[0] != '\0'));
    if (rc < 0)
        return;
    DEMAND(thing.what.text != NULL && (present & 1 << 6));
    DEMAND(!(present & 1) || thing.name.length <= 20);
    DEMAND(!(present & 2) || (thing.count >= 1 && thing.count <= 1000));
    DEMAND(!(present & 1 << 5) || gb_json_count(thing.list) <= 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct gb_pool pool = {0};
    struct gb_json value;
    struct gb_error error = {0};
    round_trip(text, size, &pool);
    int rc = gb_json_check(text, size, &pool, &value, &error);
    if (rc == 0) {
        DEMAND(value.text >= text && value.text + gb_json_length(value) <= text + size);
        const char *end;
        bool nul = memmem(text, size, "\\u0000", 6) != NULL; /* cJSON differs for these */
        cJSON *oracle = cJSON_ParseWithLengthOpts(text, size, &end, 0);
        DEMAND(oracle != NULL || nul);
        if (!nul)
            compare(value, oracle, &pool);
        cJSON_Delete(oracle);
        read_table(value, GB_UNKNOWN_REFUSE, &pool);
        read_table(value, GB_UNKNOWN_IGNORE, &pool);
    } else {
        DEMAND(rc == GPUBUF_E_PARSE && error.message[0] != '\0');
    }

    struct gb_rpc_request request;
    struct gb_rpc_message message;
    struct gb_error ignored;
    gb_rpc_read_request(text, size, &pool, &request, &error);
    if (gb_rpc_read_message(text, size, &pool, &message, &error) == 0 && message.error.text != NULL)
        gb_rpc_read_error(message.error, &pool, &ignored);
    gb_pool_end(&pool);
    return 0;
}
