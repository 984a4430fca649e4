#include "json_write.h"

enum { CHUNK = 1 << 16 };

/* Writes the text gathered so far. False: the stream has an error, or memory is out, told in
   *status. */
static bool flush(FILE *file, struct gb_writer *text, struct gb_error *error, int *status)
{
    if (text->failed) {
        *status = gb_fail_memory(error);
        return false;
    }
    bool done = fwrite(text->data, 1, text->length, file) == text->length;
    gb_writer_reset(text);
    return done;
}

static int write_row(const struct gb_csv_source *sources, size_t count, uint64_t row,
                     struct gb_writer *text, struct gb_error *error)
{
    gb_write_char(text, '{');
    for (size_t k = 0; k < count; k++) {
        const char *name = sources[k].name ? sources[k].name : "";
        if (k > 0)
            gb_write_char(text, ',');
        gb_write_cstring(text, name);
        gb_write_char(text, ':');
        int status = gb_series_write_json(sources[k].series,
                                          sources[k].first + row * sources[k].step, text, error);
        if (status != 0)
            return status;
    }
    gb_write_char(text, '}');
    return 0;
}

int gb_json_write_rows(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                       bool lines, struct gb_progress *progress, struct gb_error *error)
{
    struct gb_writer text;
    uint64_t written = 0;
    int status = 0;

    gb_writer_init(&text, 0);
    gb_write_text(&text, lines ? "" : "[");
    for (uint64_t row = 0; row < rows; row++) {
        if (!lines)
            gb_write_text(&text, row ? ",\n " : "\n ");
        status = write_row(sources, count, row, &text, error);
        if (status != 0)
            break;
        if (lines)
            gb_write_char(&text, '\n');
        written += text.length;
        if (row % 1024 == 0) {
            progress->total = written / (row + 1) * rows; /* estimated from the rows so far */
            gb_progress_update(progress, written);
        }
        if (!flush(file, &text, error, &status))
            break;
    }
    if (status == 0 && !lines && !ferror(file)) {
        gb_write_text(&text, rows ? "\n]\n" : "]\n");
        (void)flush(file, &text, error, &status);
    }
    gb_writer_end(&text);
    return status;
}

/* How many axes end, or begin, between element i - 1 and element i. */
static unsigned breaks(const uint64_t *shape, unsigned ndim, uint64_t i)
{
    unsigned axes = 0;

    for (uint64_t step = 1; axes < ndim; axes++) {
        step *= shape[ndim - 1 - axes];
        if (i % step != 0)
            break;
    }
    return axes;
}

static void write_brackets(struct gb_writer *text, unsigned count, char bracket)
{
    for (unsigned i = 0; i < count; i++)
        gb_write_char(text, bracket);
}

int gb_json_write_items(FILE *file, const struct gb_series *series, unsigned ndim,
                        struct gb_progress *progress, struct gb_error *error)
{
    const uint64_t *shape = series->shape ? series->shape : &series->length;
    struct gb_writer text;
    int status = 0;

    gb_writer_init(&text, 0);
    if (series->length == 0 && ndim > 0) /* some axis has length 0, whichever */
        write_brackets(&text, 1, '[');
    for (uint64_t i = 0; i < series->length; i++) {
        unsigned axes = breaks(shape, ndim, i);
        if (i > 0) {
            write_brackets(&text, axes, ']');
            gb_write_text(&text, axes ? ",\n " : ", ");
        }
        write_brackets(&text, axes, '[');
        status = gb_series_write_json(series, i, &text, error);
        if (status != 0 || (text.length >= CHUNK && !flush(file, &text, error, &status)))
            break;
        if (i % 4096 == 0)
            gb_progress_update(progress, i * series->item_bytes);
    }
    if (status == 0 && !ferror(file)) {
        write_brackets(&text, series->length ? ndim : ndim > 0, ']');
        gb_write_char(&text, '\n');
        (void)flush(file, &text, error, &status);
    }
    gb_writer_end(&text);
    return status;
}
