#include "client/gpubufctl/data/csv_write.h"

#include <string.h>

#include "client/gpubufctl/output/end.h"

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
static void write_cell(const struct gb_series *series, uint64_t i, struct gb_writer *row,
                       struct gb_writer *scratch)
{
    if (!gb_series_valid(series, i))
        return;
    if (gb_series_is_number(series) || series->dtype.type == GB_TYPE_BOOL) {
        gb_series_write(series, i, row);
        return;
    }
    gb_writer_reset(scratch);
    gb_series_write(series, i, scratch);
    gb_csv_write_field(row, gb_writer_text(scratch), scratch->length);
}

bool gb_text_flush(FILE *file, struct gb_writer *text)
{
    (void)gb_writer_text(text);
    bool done = fwrite(text->data, 1, text->length, file) == text->length;
    gb_writer_reset(text);
    return done;
}

void gb_csv_write(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                  struct gb_progress *progress)
{
    struct gb_writer row, scratch;
    uint64_t written = 0;

    gb_writer_init(&row, 0);
    gb_writer_init(&scratch, 0);
    for (size_t k = 0; k < count; k++) {
        if (k > 0)
            gb_write_char(&row, ',');
        gb_csv_write_field(&row, sources[k].name, strlen(sources[k].name));
    }
    gb_write_char(&row, '\n');
    for (uint64_t i = 0; gb_text_flush(file, &row) && i < rows; i++) {
        for (size_t k = 0; k < count; k++) {
            if (k > 0)
                gb_write_char(&row, ',');
            write_cell(sources[k].series, sources[k].first + i * sources[k].step, &row, &scratch);
        }
        gb_write_char(&row, '\n');
        written += row.length;
        if (i % 1024 == 0) {
            progress->total = written / (i + 1) * rows; /* estimated from the rows so far */
            gb_progress_update(progress, written);
        }
    }
    gb_writer_end(&row);
    gb_writer_end(&scratch);
}
