/* Publishing CSV files and JSON lines as tables. */
#include <stdlib.h>
#include <string.h>

#include "csv_table.h"
#include "decode.h"
#include "json_table.h"
#include "put.h"

enum { CHUNK = 1 << 20 };

/* Reads the file and hands its text, in UTF-8, to the reader of its format. */
static int feed_all(struct gb_put *put, gb_text_taker feed, void *reader)
{
    struct gb_decoder *decoder = NULL;
    char *chunk = malloc(CHUNK);
    uint64_t got = CHUNK;
    int code = chunk ? 0 : gb_fail_memory(&put->error);

    if (code == 0 && put->encoding)
        code = gb_decoder_new(&decoder, put->encoding, &put->error);
    while (code == 0 && got == CHUNK) {
        code = gb_put_read(put, chunk, CHUNK, &got);
        if (code == 0 && decoder)
            code = gb_decoder_feed(decoder, chunk, (size_t)got, got < CHUNK, feed, reader,
                                   &put->error);
        else if (code == 0)
            code = feed(reader, chunk, (size_t)got, got < CHUNK, &put->error);
    }
    gb_decoder_free(decoder);
    free(chunk);
    return code;
}

static int feed_csv(void *reader, const char *bytes, size_t length, bool last,
                    struct gb_error *error)
{
    (void)last;
    return gb_csv_reader_feed(reader, bytes, length, error);
}

static int feed_lines(void *reader, const char *bytes, size_t length, bool last,
                      struct gb_error *error)
{
    return gb_json_lines_feed(reader, bytes, length, last, error);
}

static int force_type(struct gb_put *put, struct gb_csv_table *table, const char *name,
                      size_t length, const char *type)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (strlen(table->columns[i].name) == length &&
            memcmp(table->columns[i].name, name, length) == 0)
            return gb_csv_column_force(&table->columns[i], type, &put->error);
    return gb_fail(&put->error, GPUBUF_E_INVALID, "--types: there is no column \"%.*s\"",
                   (int)(length < 100 ? length : 100), name);
}

/* Gives columns the types that --types says. */
static int force_types(struct gb_put *put, struct gb_csv_table *table)
{
    const char **pairs = gb_parse_list(put->types);
    int code = 0;

    if (!pairs)
        return gb_fail_memory(&put->error);
    for (size_t i = 0; pairs[i] && code == 0; i++) {
        const char *mark = strrchr(pairs[i], '=');
        code = mark ? force_type(put, table, pairs[i], (size_t)(mark - pairs[i]), mark + 1)
                    : gb_fail(&put->error, GPUBUF_E_INVALID,
                              "--types is such as zip=utf8,day=date32, not \"%.100s\"", pairs[i]);
    }
    free(pairs);
    return code;
}

static int read_table(struct gb_put *put, struct gb_csv_table *table)
{
    struct gb_csv_reader *reader = NULL;

    int code = gb_csv_reader_new(&reader, &put->error);
    if (code == 0) {
        gb_csv_reader_set(reader, &put->csv);
        code = feed_all(put, feed_csv, reader);
    }
    if (code == 0)
        code = gb_csv_reader_finish(reader, table, &put->error);
    if (code == 0 && put->types)
        code = force_types(put, table);
    gb_csv_reader_free(reader);
    return code == 0 ? GB_STATUS_OK : gb_put_failure(put);
}

static int create_table(struct gb_put *put, const struct gb_csv_table *table)
{
    struct gpubuf_column_spec *columns = calloc(table->column_count, sizeof(*columns));

    if (!columns) {
        gb_fail_memory(&put->error);
        return gb_put_failure(put);
    }
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
    int status = gb_put_create(put, &layout);
    free(columns);
    return status;
}

static int fill_column(struct gb_put *put, const struct gb_csv_column *source, size_t i)
{
    struct gpubuf_object *column = NULL;
    void *data = NULL, *mask = NULL, *offsets = NULL;

    int code = gpubuf_child(put->object, i, &column);
    if (code < 0)
        return gb_cli_error(put->cli, code, "cannot write %s", put->name);
    int status = gb_put_memory(put, column, GPUBUF_DATA, &data);
    if (status == GB_STATUS_OK)
        status = gb_put_memory(put, column, GPUBUF_MASK, &mask);
    if (status == GB_STATUS_OK)
        status = gb_put_memory(put, column, GPUBUF_OFFSETS, &offsets);
    if (status == GB_STATUS_OK)
        gb_csv_column_write(source, data, mask, offsets);
    gpubuf_release(column);
    return status;
}

static int put_table(struct gb_put *put, const struct gb_csv_table *table)
{
    int status = create_table(put, table);

    if (status == GB_STATUS_OK) {
        put->null_counts = calloc(table->column_count, sizeof(*put->null_counts));
        if (!put->null_counts) {
            gb_fail_memory(&put->error);
            status = gb_put_failure(put);
        }
    }
    for (size_t i = 0; i < table->column_count && status == GB_STATUS_OK; i++) {
        status = fill_column(put, &table->columns[i], i);
        put->null_counts[i] = (int64_t)table->columns[i].nulls;
    }
    return status;
}

static int check_kind(const struct gb_put *put, const char *what)
{
    if (put->kind == GB_PUT_AUTO || put->kind == GB_PUT_TABLE)
        return GB_STATUS_OK;
    return gb_cli_usage(put->cli, "%s becomes a table and nothing else", what);
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

int gb_put_csv(struct gb_put *put)
{
    struct gb_csv_table table = {0};

    int status = check_kind(put, "a CSV file");
    if (status == GB_STATUS_OK)
        status = read_table(put, &table);
    if (status == GB_STATUS_OK)
        status = put_table(put, &table);
    if (status == GB_STATUS_OK)
        tell_of_delimiter(put, &table);
    gb_csv_table_end(&table);
    return status;
}

int gb_put_jsonl(struct gb_put *put)
{
    struct gb_json_lines *lines = NULL;

    int status = check_kind(put, "a file of JSON lines");
    if (status != GB_STATUS_OK)
        return status;
    int code = gb_json_lines_new(&lines, &put->error);
    if (code == 0)
        code = feed_all(put, feed_lines, lines);
    if (code == 0 && put->types)
        code = force_types(put, gb_json_lines_table(lines));
    if (code == 0)
        code = gb_json_lines_settle(lines, &put->error);
    status = code == 0 ? put_table(put, gb_json_lines_table(lines)) : gb_put_failure(put);
    gb_json_lines_free(lines);
    return status;
}
