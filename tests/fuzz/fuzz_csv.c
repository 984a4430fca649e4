/*
 * Any bytes as CSV: refused with a sentence, or read into columns that can be written to memory of
 * just the size that they say. Where the file is cut into pieces must not matter; the first byte
 * says where.
 */
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/data/csv_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_in_steps(const uint8_t *data, size_t size, size_t step, struct gb_csv_table *table,
                         struct gb_error *error)
{
    struct gb_csv_reader *reader = gb_csv_reader_new(0);
    int code = 0;

    for (size_t at = 0; at < size && code == 0; at += step)
        code = gb_csv_reader_feed(reader, data + at, size - at < step ? size - at : step, error);
    if (code == 0)
        code = gb_csv_reader_finish(reader, table, error);
    gb_csv_reader_free(reader);
    return code;
}

static void write_column(const struct gb_csv_column *column, uint64_t rows)
{
    enum gb_csv_type type = gb_csv_column_type(column);
    size_t bytes = type == GB_CSV_BOOL  ? (rows + 7) / 8
                   : type < GB_CSV_UTF8 ? rows * 8
                                        : column->text_bytes;
    void *data = malloc(bytes ? bytes : 1), *mask = malloc(rows / 8 + 1);
    void *offsets = malloc((rows + 1) * sizeof(int32_t));

    if (!data || !mask || !offsets || column->rows != rows || column->nulls > rows)
        abort();
    gb_csv_column_write(column, data, mask, offsets);
    uint64_t nulls = 0;
    for (uint64_t i = 0; i < rows; i++)
        nulls += !(((uint8_t *)mask)[i / 8] >> (i % 8) & 1);
    if (nulls != column->nulls)
        abort();
    free(data);
    free(mask);
    free(offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_csv_table whole = {0}, pieces = {0};
    struct gb_error error = {0}, other = {0};

    if (size == 0)
        return 0;
    size_t step = data[0] + 1u;
    int code = read_in_steps(data + 1, size - 1, size, &whole, &error);
    if (read_in_steps(data + 1, size - 1, step, &pieces, &other) != code ||
        whole.rows != pieces.rows || whole.column_count != pieces.column_count)
        abort();
    if (code != 0 && (!error.message[0] || strcmp(error.message, other.message) != 0))
        abort();
    for (size_t i = 0; i < whole.column_count; i++) {
        if (gb_csv_column_type(&whole.columns[i]) != gb_csv_column_type(&pieces.columns[i]))
            abort();
        write_column(&whole.columns[i], whole.rows);
    }
    gb_csv_table_end(&whole);
    gb_csv_table_end(&pieces);
    return 0;
}
