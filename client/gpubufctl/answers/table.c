#include "client/gpubufctl/answers/table.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

static int64_t wall_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *gb_kind_of(const cJSON *object)
{
    return gb_cjson_member(object, "stream")  ? "stream"
           : gb_cjson_bool_of(object, "live") ? "live"
                                              : "sealed";
}

void gb_kind_write(struct gb_writer *out, const cJSON *object)
{
    const cJSON *stream = gb_cjson_member(object, "stream");
    int64_t readers = gb_cjson_int_of(stream, "readers", 0);

    if (stream)
        gb_write_format(out, "stream: frame %" PRId64 ", %" PRId64 " reader%s%s ",
                        gb_cjson_int_of(stream, "frames", 0), readers, readers == 1 ? "" : "s",
                        gb_cjson_int_of(stream, "writer", 0) ? "" : ", no writer");
    else if (gb_cjson_bool_of(object, "live"))
        GB_WRITE_LITERAL(out, "live ");
}

static void add_cell(struct gb_grid *grid, const struct gb_table_column *column,
                     const cJSON *object)
{
    int64_t number = gb_cjson_int_of(object, column->key, 0);
    enum gb_style style = number ? column->style : GB_STYLE_DIM;
    char text[64] = "-";

    switch (column->cell) {
    case GB_CELL_TEXT:
        gb_grid_text(grid, gb_cjson_string_of(object, column->key, ""), column->style);
        return;
    case GB_CELL_USER:
        gb_grid_text(grid, gb_user(gb_cjson_int_of(object, column->key, -1)).text, column->style);
        return;
    case GB_CELL_NUMBER:
    case GB_CELL_COUNT:
        if (number || column->cell == GB_CELL_COUNT)
            (void)snprintf(text, sizeof(text), "%" PRId64, number);
        break;
    case GB_CELL_SIZE:
        gb_grid_text(grid, gb_size(number < 0 ? 0 : (uint64_t)number).text, style);
        return;
    case GB_CELL_AGE:
        gb_grid_text(grid, gb_age(number).text, column->style);
        return;
    case GB_CELL_SINCE:
        gb_grid_text(grid, number ? gb_age(wall_clock_ms() - number).text : "", column->style);
        return;
    }
    gb_grid_text(grid, text, style);
}

void gb_table_write(struct gb_writer *out, const struct gb_table_column *columns, size_t count,
                    const cJSON *list, size_t most, unsigned width, bool color)
{
    struct gb_grid grid;
    size_t row = 0;

    gb_grid_init(&grid, count);
    for (size_t i = 0; i < count; i++) {
        grid.columns[i].right = columns[i].cell > GB_CELL_USER;
        grid.columns[i].flexible = columns[i].flexible;
        grid.columns[i].leaves = columns[i].leaves;
        gb_grid_text(&grid, columns[i].title, GB_STYLE_DIM);
    }
    GB_CJSON_EACH(object, list) {
        for (size_t i = 0; i < count && row < most; i++)
            if (columns[i].add)
                columns[i].add(&grid, object);
            else
                add_cell(&grid, &columns[i], object);
        row++;
    }
    for (size_t i = 0; i < count; i++)
        if (columns[i].hidden || (width && columns[i].least > width))
            grid.columns[i].width = 0;
    gb_grid_write(&grid, out, width, 0, color, false);
    gb_grid_end(&grid);
}

void gb_table_print(const struct gb_cli *cli, const struct gb_table_column *columns, size_t count,
                    const cJSON *list)
{
    struct gb_writer out;

    gb_writer_init(&out, 0);
    gb_table_write(&out, columns, count, list, SIZE_MAX, gb_term_width(), cli->color);
    gb_cli_print(&out);
}
