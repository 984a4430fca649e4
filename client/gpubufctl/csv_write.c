#include "csv_write.h"

#include <string.h>

static bool needs_quotes(const char *text, size_t length)
{
    if (length == 0 || text[0] == ' ' || text[0] == '\t' || text[length - 1] == ' ' ||
        text[length - 1] == '\t')
        return true;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* else it would be taken for a byte
                                                                order mark */
        return true;
    for (size_t i = 0; i < length; i++)
        if (text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r')
            return true;
    return false;
}

void gb_csv_write_field(struct gb_writer *writer, const char *text, size_t length)
{
    if (!needs_quotes(text, length)) {
        gb_write(writer, text, length);
        return;
    }
    gb_write_char(writer, '"');
    for (size_t start = 0; start < length;) {
        const char *quote = memchr(text + start, '"', length - start);
        size_t end = quote ? (size_t)(quote - text) + 1 : length;
        gb_write(writer, text + start, end - start);
        if (quote)
            gb_write_char(writer, '"');
        start = end;
    }
    gb_write_char(writer, '"');
}

/* Appends element i of the series; `scratch` is only here to be reused. */
static int write_cell(const struct gb_series *series, uint64_t i, struct gb_writer *row,
                      struct gb_writer *scratch, struct gb_error *error)
{
    if (!gb_series_valid(series, i))
        return 0;
    if (gb_series_is_number(series) || series->dtype.type == GB_TYPE_BOOL)
        return gb_series_write(series, i, row, error);
    gb_writer_reset(scratch);
    int status = gb_series_write(series, i, scratch, error);
    if (status == 0)
        gb_csv_write_field(row, scratch->length ? scratch->data : "", scratch->length);
    row->failed = row->failed || scratch->failed;
    return status;
}

static int write_rows(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                      struct gb_progress *progress, struct gb_writer *row,
                      struct gb_writer *scratch, struct gb_error *error)
{
    uint64_t written = 0;

    for (uint64_t i = 0; i < rows; i++) {
        gb_writer_reset(row);
        for (size_t k = 0; k < count; k++) {
            if (k > 0)
                gb_write_char(row, ',');
            int status = write_cell(sources[k].series, sources[k].first + i * sources[k].step, row,
                                    scratch, error);
            if (status != 0)
                return status;
        }
        gb_write_char(row, '\n');
        if (row->failed)
            return gb_fail_memory(error);
        if (fwrite(row->data, 1, row->length, file) != row->length)
            return 0;
        written += row->length;
        if (i % 1024 == 0) {
            progress->total = written / (i + 1) * rows; /* estimated from the rows so far */
            gb_progress_update(progress, written);
        }
    }
    return 0;
}

int gb_csv_write(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                 struct gb_progress *progress, struct gb_error *error)
{
    struct gb_writer row, scratch;
    int status;

    gb_writer_init(&row, 0);
    gb_writer_init(&scratch, 0);
    for (size_t k = 0; k < count; k++) {
        if (k > 0)
            gb_write_char(&row, ',');
        gb_csv_write_field(&row, sources[k].name, strlen(sources[k].name));
    }
    gb_write_char(&row, '\n');
    if (row.failed)
        status = gb_fail_memory(error);
    else if (fwrite(row.data, 1, row.length, file) != row.length)
        status = 0;
    else
        status = write_rows(file, sources, count, rows, progress, &row, &scratch, error);
    gb_writer_end(&row);
    gb_writer_end(&scratch);
    return status;
}
