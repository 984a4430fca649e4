#include "client/gpubufctl/output/json_print.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/output/end.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/term.h"

static void write_value(struct gb_writer *writer, const cJSON *value, bool indented,
                        unsigned depth);

static void write_break(struct gb_writer *writer, bool indented, unsigned depth)
{
    if (!indented)
        return;
    gb_write_char(writer, '\n');
    for (unsigned i = 0; i < depth; i++)
        GB_WRITE_LITERAL(writer, "  ");
}

static void write_number(struct gb_writer *writer, double number)
{
    char text[GB_FORMAT_MAX];

    if (!isfinite(number)) {
        GB_WRITE_LITERAL(writer, "null");
    } else if (fabs(number) < 9007199254740992.0 && number == floor(number)) {
        gb_write_int(writer, (int64_t)number);
    } else {
        gb_format_float64(number, text);
        gb_write_text(writer, text);
    }
}

/* Arrays of plain values, such as shapes, stay on one line. */
static bool is_plain_array(const cJSON *value)
{
    GB_CJSON_EACH(item, value)
        if (cJSON_IsObject(item) || cJSON_IsArray(item))
            return false;
    return cJSON_IsArray(value);
}

static void write_container(struct gb_writer *writer, const cJSON *value, bool indented,
                            unsigned depth)
{
    bool object = cJSON_IsObject(value);
    bool open = indented && value->child && !is_plain_array(value);

    gb_write_char(writer, object ? '{' : '[');
    GB_CJSON_EACH(item, value) {
        if (item != value->child) {
            gb_write_char(writer, ',');
            if (indented && !open)
                gb_write_char(writer, ' ');
        }
        write_break(writer, open, depth + 1);
        if (object) {
            gb_write_cstring(writer, item->string);
            gb_write_char(writer, ':');
            if (indented)
                gb_write_char(writer, ' ');
        }
        write_value(writer, item, indented, depth + 1);
    }
    write_break(writer, open, depth);
    gb_write_char(writer, object ? '}' : ']');
}

static void write_value(struct gb_writer *writer, const cJSON *value, bool indented, unsigned depth)
{
    if (cJSON_IsString(value))
        gb_write_cstring(writer, value->valuestring);
    else if (cJSON_IsNumber(value))
        write_number(writer, value->valuedouble);
    else if (cJSON_IsBool(value))
        gb_write_bool(writer, cJSON_IsTrue(value));
    else if (cJSON_IsArray(value) || cJSON_IsObject(value))
        write_container(writer, value, indented, depth);
    else
        GB_WRITE_LITERAL(writer, "null");
}

void gb_cjson_print(const cJSON *value, bool indented)
{
    struct gb_writer writer, clean;

    gb_writer_init(&writer, 0);
    gb_writer_init(&clean, 0);
    write_value(&writer, value, indented, 0);
    gb_write_char(&writer, '\n');
    gb_text_clean_json(&clean, gb_writer_text(&writer), writer.length);
    fputs(gb_writer_text(&clean), stdout);
    gb_writer_end(&writer);
    gb_writer_end(&clean);
}

cJSON *gb_cjson_parse(const char *text)
{
    return cJSON_ParseWithOpts(text, NULL, 1);
}

char *gb_cjson_text(const cJSON *value)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    write_value(&writer, value, false, 0);
    (void)gb_writer_text(&writer);
    return gb_writer_take(&writer, NULL);
}

static cJSON *make(const char *pattern, va_list *arguments)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_pattern_v(&writer, pattern, arguments);
    cJSON *value = gb_cjson_parse(gb_writer_text(&writer));
    gb_writer_end(&writer);
    return value;
}

cJSON *gb_cjson(const char *pattern, ...)
{
    va_list arguments;

    va_start(arguments, pattern);
    cJSON *value = make(pattern, &arguments);
    va_end(arguments);
    return value;
}

void gb_cjson_print_pattern(const char *pattern, ...)
{
    va_list arguments;

    va_start(arguments, pattern);
    cJSON *value = make(pattern, &arguments);
    va_end(arguments);
    gb_cjson_print(value, true);
    cJSON_Delete(value);
}

const char *gb_cjson_string_of(const cJSON *object, const char *key, const char *otherwise)
{
    const cJSON *item = gb_cjson_member(object, key);

    return cJSON_IsString(item) ? item->valuestring : otherwise;
}

int64_t gb_cjson_int_of(const cJSON *object, const char *key, int64_t otherwise)
{
    const cJSON *item = gb_cjson_member(object, key);

    if (!cJSON_IsNumber(item) || fabs(item->valuedouble) > 9007199254740992.0)
        return otherwise;
    return (int64_t)item->valuedouble;
}

bool gb_cjson_bool_of(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(gb_cjson_member(object, key));
}

/* ---- order ---- */

struct row {
    cJSON *object;
    const char *name;
    int64_t key[2];
    size_t place;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = 0;

    for (size_t i = 0; i < 2 && order == 0; i++)
        order = (x->key[i] < y->key[i]) - (x->key[i] > y->key[i]);
    if (order == 0)
        order = strcmp(x->name, y->name);
    if (order == 0)
        order = (x->place > y->place) - (x->place < y->place);
    return order;
}

static int64_t key_of(const cJSON *object, const char *key)
{
    if (!key)
        return 0;
    return *key == '-' ? -gb_cjson_int_of(object, key + 1, 0) : gb_cjson_int_of(object, key, 0);
}

void gb_cjson_sort(cJSON *list, const char *first, const char *second)
{
    size_t count = (size_t)cJSON_GetArraySize(list);
    struct row *rows = gb_new(count, sizeof(*rows));

    for (size_t i = 0; i < count; i++) {
        cJSON *object = cJSON_DetachItemViaPointer(list, list->child);
        rows[i] = (struct row){object,
                               gb_cjson_string_of(object, "name", ""),
                               {key_of(object, first), key_of(object, second)},
                               i};
    }
    qsort(rows, count, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(list, rows[i].object);
    free(rows);
}
