#include "json_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"
#include "proto/limits.h"

enum { LINE_MAX_BYTES = 64 << 20 };

/* The types of a column's values so far. */
struct seen {
    enum gb_json_type type; /* the first that is no null; GB_JSON_NULL: none was */
    enum gb_json_type other;
    uint64_t line; /* where the first one of another type is; 0: there is none */
};

struct gb_json_lines {
    struct gb_csv_table table;
    struct seen *seen; /* of each column */
    struct gb_pool pool;
    char *line; /* the beginning of a line whose end has not come yet */
    size_t length, capacity;
    uint64_t number;
};

struct gb_json_lines *gb_json_lines_new(void)
{
    return gb_new(1, sizeof(struct gb_json_lines));
}

void gb_json_lines_free(struct gb_json_lines *lines)
{
    gb_csv_table_end(&lines->table);
    gb_pool_end(&lines->pool);
    free(lines->seen);
    free(lines->line);
    free(lines);
}

struct gb_csv_table *gb_json_lines_table(struct gb_json_lines *lines)
{
    return &lines->table;
}

/* Finds the column of this name, or adds one that is null in all rows before. `expected`: its index
   if all lines have the same members. */
static int find_column(struct gb_json_lines *lines, const struct gb_string *name, size_t expected,
                       size_t *index, struct gb_error *error)
{
    struct gb_csv_table *table = &lines->table;

    if (expected < table->column_count && strcmp(table->columns[expected].name, name->text) == 0) {
        *index = expected;
        return 0;
    }
    for (*index = 0; *index < table->column_count; ++*index)
        if (strcmp(table->columns[*index].name, name->text) == 0)
            return 0;
    lines->seen = gb_grow(lines->seen, table->column_count + 1, sizeof(*lines->seen));
    lines->seen[table->column_count] = (struct seen){.type = GB_JSON_NULL};
    int r = gb_csv_table_add(table, name->text, name->length, error);
    for (uint64_t row = 0; row < table->rows && r == 0; row++)
        r = gb_csv_column_append(&table->columns[*index], NULL, 0, error);
    return r;
}

static int append_value(struct gb_json_lines *lines, size_t index, struct gb_json value,
                        struct gb_error *error)
{
    struct gb_csv_column *column = &lines->table.columns[index];
    struct gb_string string = {value.text, gb_json_length(value)};
    struct gb_path path = {.key = column->name};
    struct seen *seen = &lines->seen[index];
    enum gb_json_type type = gb_json_type(value);

    if (column->rows > lines->table.rows)
        return gb_fail_at(error, &path, "occurs twice");
    if (type == GB_JSON_NULL)
        return gb_csv_column_append(column, NULL, 0, error);
    if (type == GB_JSON_ARRAY || type == GB_JSON_OBJECT)
        return gb_fail_at(
            error, &path,
            "%s, and gpubufctl makes no column of it; Python can put lists and objects",
            gb_json_type_name(type));
    int r =
        type == GB_JSON_STRING ? gb_json_string(value, 0, &path, &lines->pool, &string, error) : 0;
    if (seen->type == GB_JSON_NULL) {
        seen->type = type;
    } else if (seen->type != type && seen->line == 0) {
        seen->other = type;
        seen->line = lines->number;
    }
    return r == 0 ? gb_csv_column_append(column, string.text, string.length, error) : r;
}

static int read_row(struct gb_json_lines *lines, struct gb_json row, struct gb_error *error)
{
    struct gb_csv_table *table = &lines->table;
    struct gb_json_walk walk;
    struct gb_json key, value;
    size_t index, expected = 0;
    int r = 0;

    if (gb_json_type(row) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_INVALID, "%s; expected an object, one for each row",
                       gb_json_type_name(gb_json_type(row)));
    walk = gb_json_walk(row);
    while (r == 0 && gb_json_next(&walk, &key, &value)) {
        struct gb_string name;
        r = gb_json_string(key, 0, &(struct gb_path){.key = "a member's name"}, &lines->pool, &name,
                           error);
        if (r == 0)
            r = find_column(lines, &name, expected, &index, error);
        if (r == 0)
            r = append_value(lines, index, value, error);
        expected = index + 1;
    }
    table->rows++;
    for (size_t i = 0; i < table->column_count && r == 0; i++)
        if (table->columns[i].rows < table->rows)
            r = gb_csv_column_append(&table->columns[i], NULL, 0, error);
    return r;
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == '\0')
            return false;
    return true;
}

static int read_line(struct gb_json_lines *lines, const char *line, size_t length,
                     struct gb_error *error)
{
    struct gb_error own;
    struct gb_json row;

    if (++lines->number == 1 && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        length -= 3;
    }
    if (is_blank(line, length))
        return 0;
    gb_pool_reset(&lines->pool);
    int r = gb_json_check(line, length, &lines->pool, &row, &own);
    bool syntax = r != 0;
    if (r == 0)
        r = read_row(lines, row, &own);
    return r == 0
               ? 0
               : gb_fail(error, r == GPUBUF_E_PARSE ? GPUBUF_E_INVALID : r, "line %" PRIu64 "%s %s",
                         lines->number, syntax ? "," : ":", own.message);
}

/* Keeps the part of a line that has not ended. */
static int keep(struct gb_json_lines *lines, const char *bytes, size_t length,
                struct gb_error *error)
{
    if (length > LINE_MAX_BYTES - lines->length)
        return gb_fail(error, GPUBUF_E_INVALID, "line %" PRIu64 ": over %d MiB long",
                       lines->number + 1, LINE_MAX_BYTES >> 20);
    if (lines->length + length > lines->capacity) {
        lines->capacity = (lines->length + length) * 2;
        lines->line = gb_grow(lines->line, lines->capacity, 1);
    }
    if (length > 0)
        memcpy(lines->line + lines->length, bytes, length);
    lines->length += length;
    return 0;
}

int gb_json_lines_feed(struct gb_json_lines *lines, const char *bytes, size_t length, bool last,
                       struct gb_error *error)
{
    const char *end = bytes + length, *stop;
    int r = 0;

    if (lines->number == 0 && lines->length == 0 && length >= 2 &&
        (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0))
        return gb_fail(error, GPUBUF_E_INVALID, "looks like UTF-16; --encoding utf-16 reads it");
    while (r == 0 && bytes < end && (stop = memchr(bytes, '\n', (size_t)(end - bytes)))) {
        if (lines->length == 0) {
            r = read_line(lines, bytes, (size_t)(stop - bytes), error);
        } else {
            r = keep(lines, bytes, (size_t)(stop - bytes), error);
            if (r == 0)
                r = read_line(lines, lines->line, lines->length, error);
            lines->length = 0;
        }
        bytes = stop + 1;
    }
    if (r == 0)
        r = keep(lines, bytes, (size_t)(end - bytes), error);
    if (r == 0 && last && lines->length > 0)
        r = read_line(lines, lines->line, lines->length, error);
    if (r == 0 && last && lines->table.column_count == 0)
        r = gb_fail(error, GPUBUF_E_INVALID,
                    "there are no columns: expected lines of JSON objects");
    return r;
}

int gb_json_lines_settle(struct gb_json_lines *lines, struct gb_error *error)
{
    for (size_t i = 0; i < lines->table.column_count; i++) {
        struct gb_csv_column *column = &lines->table.columns[i];
        const struct seen *seen = &lines->seen[i];
        if (column->forced)
            continue;
        if (seen->line > 0)
            return gb_fail(error, GPUBUF_E_INVALID,
                           "line %" PRIu64 ", \"%.100s\": %s, where lines before have %s; "
                           "--types '%.100s=utf8' takes all as text",
                           seen->line, column->name, gb_json_type_name(seen->other),
                           gb_json_type_name(seen->type), column->name);
        if (seen->type == GB_JSON_STRING)
            column->candidates = 1u << GB_CSV_UTF8;
    }
    return 0;
}
