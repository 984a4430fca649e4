/* Publishing CSV files as tables. */
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/data/csv_table.h"
#include "client/gpubufctl/data/put.h"

enum { CHUNK = 1 << 20 };

static void check(int code, const struct gb_error *error)
{
    if (code < 0)
        gb_cli_end_by(error);
}

static void feed_all(struct gb_put *put, struct gb_csv_reader *reader)
{
    char *chunk = gb_grow(NULL, CHUNK, 1);
    struct gb_error error;
    uint64_t got = CHUNK;

    while (got == CHUNK) {
        got = gb_put_read(put, chunk, CHUNK);
        check(gb_csv_reader_feed(reader, chunk, (size_t)got, &error), &error);
    }
    free(chunk);
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

/* A file with another delimiter is a table of one column, which is seldom meant. */
static void tell_of_delimiter(const struct gb_put *put, const struct gb_csv_table *table)
{
    const char *name = table->column_count == 1 ? table->columns[0].name : "";
    size_t at = strcspn(name, ";|\t");

    if (put->delimiter || !name[at])
        return;
    char quoted[] = {'\'', name[at], '\'', '\0'};
    fprintf(stderr, "gpubufctl: %s has one column; --delimiter %s makes several of it\n",
            put->input.name, name[at] == '\t' ? "tab" : quoted);
}

void gb_put_csv(struct gb_put *put)
{
    struct gb_csv_table table = {0};
    struct gb_csv_reader *reader = gb_csv_reader_new(put->delimiter);
    struct gb_error error;

    if (put->kind != GB_PUT_AUTO && put->kind != GB_PUT_TABLE)
        gb_cli_usage(put->cli, "a CSV file becomes a table and nothing else");
    feed_all(put, reader);
    check(gb_csv_reader_finish(reader, &table, &error), &error);
    gb_csv_reader_free(reader);
    put_table(put, &table);
    tell_of_delimiter(put, &table);
    gb_csv_table_end(&table);
}
