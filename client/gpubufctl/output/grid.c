#include "client/gpubufctl/output/grid.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/output/end.h"

enum { GAP = 2, NARROWEST = 8 };

void gb_grid_init(struct gb_grid *grid, size_t columns)
{
    *grid = (struct gb_grid){.column_count = columns};
    grid->columns = gb_new(columns, sizeof(*grid->columns));
}

void gb_grid_end(struct gb_grid *grid)
{
    for (size_t i = 0; i < grid->count; i++)
        free(grid->cells[i].text);
    free(grid->cells);
    free(grid->columns);
    *grid = (struct gb_grid){0};
}

static void cut_cell(struct gb_writer *writer, unsigned longest)
{
    size_t fits = gb_text_fit(writer->data, writer->length, longest - 1);

    writer->length = fits;
    gb_write_text(writer, gb_term_ellipsis());
}

void gb_grid_add(struct gb_grid *grid, const char *text, size_t length, enum gb_style style)
{
    if (grid->count == grid->capacity) {
        grid->capacity = grid->capacity * 2 + 64;
        grid->cells = gb_grow(grid->cells, grid->capacity, sizeof(*grid->cells));
    }

    struct gb_writer clean;
    gb_writer_init(&clean, 0);
    /* Of a very long text only as much as could ever be shown. */
    if (grid->longest && length > 16 * (size_t)grid->longest)
        length = 16 * (size_t)grid->longest;
    gb_text_clean(&clean, text, length);
    unsigned width = clean.length ? gb_text_width(clean.data, clean.length) : 0;
    if (grid->longest && width > grid->longest) {
        cut_cell(&clean, grid->longest);
        width = gb_text_width(clean.data, clean.length);
    }
    struct gb_grid_cell cell = {.width = width, .style = style};
    (void)gb_writer_text(&clean);
    cell.text = gb_writer_take(&clean, &cell.length);
    struct gb_grid_column *column = &grid->columns[grid->count % grid->column_count];
    if (width > column->width)
        column->width = width;
    grid->cells[grid->count++] = cell;
}

void gb_grid_text(struct gb_grid *grid, const char *text, enum gb_style style)
{
    gb_grid_add(grid, text, strlen(text), style);
}

void gb_grid_format(struct gb_grid *grid, enum gb_style style, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    gb_grid_text(grid, text, style);
}

/* ---- writing -------------------------------------------------------------------------------- */

static unsigned total_width(const unsigned *widths, size_t count)
{
    unsigned total = 0;

    for (size_t i = 0; i < count; i++)
        if (widths[i] > 0)
            total += widths[i] + (total ? GAP : 0);
    return total;
}

static size_t fit_by_dropping(const unsigned *widths, size_t count, unsigned room)
{
    while (count > 1 && total_width(widths, count) > room)
        count--;
    return count;
}

/* Leaves columns out until the rest fits: their width becomes 0. */
static void fit_by_leaving(const struct gb_grid *grid, unsigned *widths, unsigned room)
{
    while (total_width(widths, grid->column_count) > room) {
        size_t first = grid->column_count;
        for (size_t i = 0; i < grid->column_count; i++)
            if (grid->columns[i].leaves && widths[i] > 0 &&
                (first == grid->column_count ||
                 grid->columns[i].leaves > grid->columns[first].leaves))
                first = i;
        if (first == grid->column_count)
            return;
        widths[first] = 0;
    }
}

static void fit_by_cutting(const struct gb_grid *grid, unsigned *widths, unsigned room)
{
    unsigned total = total_width(widths, grid->column_count);

    while (total > room) {
        size_t widest = grid->column_count;
        for (size_t i = 0; i < grid->column_count; i++)
            if (grid->columns[i].flexible && widths[i] > NARROWEST &&
                (widest == grid->column_count || widths[i] > widths[widest]))
                widest = i;
        if (widest == grid->column_count)
            return;
        widths[widest]--;
        total--;
    }
}

/* Writes `*spaces` spaces and the cell, and sets `*spaces` to how many belong behind it. They are
   written before the next cell, so that no line ends in spaces. */
static void write_cell(struct gb_writer *writer, const struct gb_grid_cell *cell,
                       const struct gb_grid_column *column, unsigned width, unsigned *spaces,
                       bool color)
{
    bool cut = cell->width > width;
    size_t length = cut ? gb_text_fit(cell->text, cell->length, width - 1) : cell->length;
    unsigned used = cut ? gb_text_width(cell->text, length) + 1 : cell->width;
    unsigned before = column->right ? width - used : 0;

    if (length == 0 && !cut) {
        *spaces += width;
        return;
    }
    gb_write_format(writer, "%*s%s", (int)(*spaces + before), "", gb_style_on(color, cell->style));
    gb_write(writer, cell->text, length);
    gb_write_text(writer, cut ? gb_term_ellipsis() : "");
    gb_write_text(writer, gb_style_off(color, cell->style));
    *spaces = width - used - before;
}

size_t gb_grid_write(const struct gb_grid *grid, struct gb_writer *writer, unsigned width,
                     unsigned indent, bool color, bool drop)
{
    unsigned *widths = gb_new(grid->column_count, sizeof(*widths));
    size_t count = grid->column_count;

    for (size_t i = 0; i < count; i++)
        widths[i] = grid->columns[i].width;
    if (width > 0) {
        unsigned room = width > indent ? width - indent : 1;
        if (drop) {
            count = fit_by_dropping(widths, count, room);
        } else {
            fit_by_leaving(grid, widths, room);
            fit_by_cutting(grid, widths, room);
        }
        if (count == 1 && widths[0] > room)
            widths[0] = room;
    }
    for (size_t row = 0; count > 0 && row < grid->count / grid->column_count; row++) {
        unsigned spaces = indent;
        for (size_t i = 0; i < count; i++) {
            if (widths[i] == 0)
                continue;
            write_cell(writer, &grid->cells[row * grid->column_count + i], &grid->columns[i],
                       widths[i], &spaces, color);
            spaces += GAP;
        }
        gb_write_char(writer, '\n');
    }
    free(widths);
    return count;
}

size_t gb_grid_print(struct gb_grid *grid, unsigned width, unsigned indent, bool color, bool drop)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    size_t shown = gb_grid_write(grid, &writer, width, indent, color, drop);
    fputs(gb_writer_text(&writer), stdout);
    gb_writer_end(&writer);
    gb_grid_end(grid);
    return shown;
}
