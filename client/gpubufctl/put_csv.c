/* Publishing CSV files and JSON lines as tables. */
#include <stdlib.h>
#include <string.h>

#include "csv_table.h"
#include "decode.h"
#include "json_table.h"
#include "put.h"

enum { CHUNK = 1 << 20 };

static void check(int code, const struct gb_error *error)
{
    if (code < 0)
        gb_cli_end_by(error);
}

/* Reads the file and hands its text, in UTF-8, to the reader of its format. */
static void feed_all(struct gb_put *put, gb_text_taker feed, void *reader)
{
    struct gb_decoder *decoder = NULL;
    char *chunk = gb_grow(NULL, CHUNK, 1);
    struct gb_error error;
    uint64_t got = CHUNK;

    if (put->encoding)
        check(gb_decoder_new(&decoder, put->encoding, &error), &error);
    while (got == CHUNK) {
        got = gb_put_read(put, chunk, CHUNK);
        check(decoder
                  ? gb_decoder_feed(decoder, chunk, (size_t)got, got < CHUNK, feed, reader, &error)
                  : feed(reader, chunk, (size_t)got, got < CHUNK, &error),
              &error);
    }
    gb_decoder_free(decoder);
    free(chunk);
}

static int feed_csv(void *reader, const char *bytes, size_t length, bool last,
                    struct gb_error *error)
{
    return gb_csv_reader_feed(reader, bytes, length, error);
}

static int feed_lines(void *reader, const char *bytes, size_t length, bool last,
                      struct gb_error *error)
{
    return gb_json_lines_feed(reader, bytes, length, last, error);
}

static void force_type(struct gb_csv_table *table, const char *name, size_t length,
                       const char *type)
{
    struct gb_error error;
    size_t i = 0;

    while (i < table->column_count && (strlen(table->columns[i].name) != length ||
                                       memcmp(table->columns[i].name, name, length) != 0))
        i++;
    if (i == table->column_count)
        gb_cli_refuse(GPUBUF_E_INVALID, "--types: there is no column \"%.*s\"",
                      (int)(length < 100 ? length : 100), name);
    check(gb_csv_column_force(&table->columns[i], type, &error), &error);
}

/* Gives columns the types that --types says. */
static void force_types(const struct gb_put *put, struct gb_csv_table *table)
{
    const char **pairs = put->types ? gb_parse_list(put->types) : NULL;

    for (size_t i = 0; pairs && pairs[i]; i++) {
        const char *mark = strrchr(pairs[i], '=');
        if (!mark)
            gb_cli_refuse(GPUBUF_E_INVALID,
                          "--types is such as zip=utf8,day=date32, not \"%.100s\"", pairs[i]);
        force_type(table, pairs[i], (size_t)(mark - pairs[i]), mark + 1);
    }
    free(pairs);
}

static void create_table(struct gb_put *put, const struct gb_csv_table *table)
{
    struct gpubuf_column_spec *columns = gb_new(table->column_count, sizeof(*columns));

    for (size_t i = 0; i < table->column_count; i++) {
        const struct gb_csv_column *column = &table->columns[i];
        enum gb_csv_type type = gb_csv_column_type(column);
        columns[i] = (struct gpubuf_column_spec){
            .name = column->name,
            .dtype = gb_csv_type_name(type),
            .length = table->rows,
            .null_count = (int64_t)column->nulls,
            .mask = column->nulls > 0,
            .data_bytes = type >= GB_CSV_UTF8 ? column->text_bytes : 0,
        };
    }
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE,
        .column = {.length = table->rows, .children = columns, .child_count = table->column_count},
    };
    gb_put_create(put, &layout);
    free(columns);
}

static void fill_column(struct gb_put *put, const struct gb_csv_column *source, size_t i)
{
    struct gpubuf_object *column = NULL;

    gb_cli_check(put->cli, gpubuf_child(put->object, i, &column), "cannot write %s", put->name);
    gb_csv_column_write(source, gb_put_memory(put, column, GPUBUF_DATA),
                        gb_put_memory(put, column, GPUBUF_MASK),
                        gb_put_memory(put, column, GPUBUF_OFFSETS));
    gpubuf_release(column);
}

static void put_table(struct gb_put *put, const struct gb_csv_table *table)
{
    create_table(put, table);
    put->null_counts = gb_new(table->column_count, sizeof(*put->null_counts));
    for (size_t i = 0; i < table->column_count; i++) {
        fill_column(put, &table->columns[i], i);
        put->null_counts[i] = (int64_t)table->columns[i].nulls;
    }
}

static void check_kind(const struct gb_put *put, const char *what)
{
    if (put->kind != GB_PUT_AUTO && put->kind != GB_PUT_TABLE)
        gb_cli_usage(put->cli, "%s becomes a table and nothing else", what);
}

/* A file with another delimiter is a table of one column, which is seldom meant. */
static void tell_of_delimiter(const struct gb_put *put, const struct gb_csv_table *table)
{
    const char *name = table->column_count == 1 ? table->columns[0].name : "";
    size_t at = strcspn(name, ";|\t");

    if (put->csv.delimiter || !name[at])
        return;
    char quoted[] = {'\'', name[at], '\'', '\0'};
    fprintf(stderr, "gpubufctl: %s has one column; --delimiter %s makes several of it\n",
            put->input.name, name[at] == '\t' ? "tab" : quoted);
}

void gb_put_csv(struct gb_put *put)
{
    struct gb_csv_table table = {0};
    struct gb_csv_reader *reader = gb_csv_reader_new(&put->csv);
    struct gb_error error;

    check_kind(put, "a CSV file");
    feed_all(put, feed_csv, reader);
    check(gb_csv_reader_finish(reader, &table, &error), &error);
    gb_csv_reader_free(reader);
    force_types(put, &table);
    put_table(put, &table);
    tell_of_delimiter(put, &table);
    gb_csv_table_end(&table);
}

void gb_put_jsonl(struct gb_put *put)
{
    struct gb_json_lines *lines = gb_json_lines_new();
    struct gb_csv_table *table = gb_json_lines_table(lines);
    struct gb_error error;

    check_kind(put, "a file of JSON lines");
    feed_all(put, feed_lines, lines);
    force_types(put, table);
    check(gb_json_lines_settle(lines, &error), &error);
    put_table(put, table);
    gb_json_lines_free(lines);
}
