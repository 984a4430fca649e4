#include "json_write.h"

enum { CHUNK = 1 << 16 };

static void write_row(const struct gb_csv_source *sources, size_t count, uint64_t row,
                      struct gb_writer *text)
{
    for (size_t k = 0; k < count; k++) {
        gb_write_pattern(text, k ? ",%s:" : "{%s:", sources[k].name ? sources[k].name : "");
        gb_series_write_json(sources[k].series, sources[k].first + row * sources[k].step, text);
    }
    gb_write_text(text, count ? "}" : "{}");
}

void gb_json_write_rows(FILE *file, const struct gb_csv_source *sources, size_t count,
                        uint64_t rows, bool lines, struct gb_progress *progress)
{
    struct gb_writer text;
    uint64_t written = 0;

    gb_writer_init(&text, 0);
    gb_write_text(&text, lines ? "" : "[");
    for (uint64_t row = 0; gb_text_flush(file, &text) && row < rows; row++) {
        gb_write_text(&text, lines ? "" : row ? ",\n " : "\n ");
        write_row(sources, count, row, &text);
        gb_write_text(&text, lines ? "\n" : "");
        written += text.length;
        if (row % 1024 == 0) {
            progress->total = written / (row + 1) * rows; /* estimated from the rows so far */
            gb_progress_update(progress, written);
        }
    }
    gb_write_text(&text, lines ? "" : rows ? "\n]\n" : "]\n");
    (void)gb_text_flush(file, &text);
    gb_writer_end(&text);
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

void gb_json_write_items(FILE *file, const struct gb_series *series, unsigned ndim,
                         struct gb_progress *progress)
{
    const uint64_t *shape = series->shape ? series->shape : &series->length;
    struct gb_writer text;

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
        gb_series_write_json(series, i, &text);
        if (text.length >= CHUNK && !gb_text_flush(file, &text))
            break;
        if (i % 4096 == 0)
            gb_progress_update(progress, i * series->item_bytes);
    }
    write_brackets(&text, series->length ? ndim : ndim > 0, ']');
    gb_write_char(&text, '\n');
    (void)gb_text_flush(file, &text);
    gb_writer_end(&text);
}
