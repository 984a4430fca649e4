/* gpubufctl show NAME */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/data/series.h"
#include "client/gpubufctl/data/view.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/grid.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"

enum { ROWS, COLUMN, SLICE, VERSION, LABEL, WAIT };

const struct gb_cli_option gb_show_options[] = {
    {"rows", 'n', "N", "how many rows to print (10; of a bundle all)", NULL},
    {"column", 'c', "COLUMN", "only this column of a table, or array of a bundle", NULL},
    {"slice", 's', "A:B", "only rows, elements or bytes A to B (not included)", NULL},
    {"version", 'v', "VERSION", "this version, if it still exists", NULL},
    {"label", 'l', "LABEL", "the newest version with this label", NULL},
    {"wait", 'w', "TIME", "how long to wait for the object to exist", NULL},
    {0},
};

enum { LONGEST_CELL = 32, LONGEST_TEXT = 65536, ROW_ITEMS = 64 };

struct show {
    struct gb_cli *cli;
    const char *name;
    struct gpubuf_object *object;
    struct gpubuf_bundle *bundle; /* NULL: of another kind */
    uint64_t rows;                /* to print */
    unsigned width;
};

/* ---- cells ---------------------------------------------------------------------------------- */

/* Text that could be taken for a null, or for text in quotes, is shown in quotes. */
static bool needs_quotes(const struct gb_series *series, const struct gb_writer *text)
{
    bool is_text = series->dtype.type == GB_TYPE_UTF8 || series->dtype.type == GB_TYPE_LARGE_UTF8;

    return is_text && text->length > 0 &&
           (text->data[0] == '"' || (text->length == 4 && memcmp(text->data, "null", 4) == 0));
}

static void add_quoted(struct gb_grid *grid, const struct gb_writer *text)
{
    struct gb_writer quoted;

    gb_writer_init(&quoted, 0);
    gb_write_string(&quoted, text->data, text->length);
    gb_grid_add(grid, quoted.length ? quoted.data : "", quoted.length, GB_STYLE_NONE);
    gb_writer_end(&quoted);
}

static void add_value(const struct gb_series *series, uint64_t i, struct gb_grid *grid)
{
    struct gb_writer text;

    if (!gb_series_valid(series, i)) {
        gb_grid_text(grid, "null", GB_STYLE_DIM);
        return;
    }
    /* The writer fails past this length; the cell would be cut anyway. */
    gb_writer_init(&text, LONGEST_TEXT);
    gb_series_write(series, i, &text);
    if (text.failed && text.length <= LONGEST_CELL)
        gb_grid_text(grid, "…", GB_STYLE_DIM);
    else if (needs_quotes(series, &text))
        add_quoted(grid, &text);
    else
        gb_grid_add(grid, text.length ? text.data : "", text.length, GB_STYLE_NONE);
    gb_writer_end(&text);
}

static void print_more(const struct show *show, uint64_t left, const char *one, const char *many)
{
    if (left > 0)
        printf("%s… %s more %s%s\n", gb_style_on(show->cli->color, GB_STYLE_DIM),
               gb_count(left).text, left == 1 ? one : many,
               gb_style_off(show->cli->color, GB_STYLE_DIM));
}

/* ---- tables and columns --------------------------------------------------------------------- */

/* One line for each column: its name, type and how many nulls it has. */
static void print_columns(const struct show *show, const struct gb_series *series, size_t count)
{
    struct gb_grid grid;
    char text[64];

    gb_grid_init(&grid, 3);
    grid.longest = 60;
    grid.columns[0].flexible = true;
    grid.columns[2].right = true;
    gb_grid_text(&grid, "column", GB_STYLE_DIM);
    gb_grid_text(&grid, "type", GB_STYLE_DIM);
    gb_grid_text(&grid, "nulls", GB_STYLE_DIM);
    for (size_t i = 0; i < count; i++) {
        uint64_t nulls = gb_series_nulls(&series[i]);
        gb_dtype_format(&series[i].dtype, text, sizeof(text));
        gb_grid_text(&grid, series[i].name ? series[i].name : "", GB_STYLE_BOLD);
        gb_grid_text(&grid, text, GB_STYLE_NONE);
        gb_grid_text(&grid, gb_count(nulls).text, nulls ? GB_STYLE_NONE : GB_STYLE_DIM);
    }
    gb_grid_print(&grid, show->width, 2, show->cli->color, false);
}

static void print_rows(const struct show *show, const struct gb_series *series, size_t count,
                       uint64_t length)
{
    uint64_t rows = length < show->rows ? length : show->rows;
    struct gb_grid grid;

    if (rows == 0 || count == 0)
        return;
    gb_grid_init(&grid, count);
    grid.longest = LONGEST_CELL;
    for (size_t i = 0; i < count; i++) {
        grid.columns[i].right = gb_series_is_number(&series[i]);
        gb_grid_text(&grid, series[i].name ? series[i].name : "value", GB_STYLE_BOLD);
    }
    for (uint64_t row = 0; row < rows; row++)
        for (size_t i = 0; i < count; i++)
            add_value(&series[i], row, &grid);
    putchar('\n');
    size_t shown = gb_grid_print(&grid, show->width, 2, show->cli->color, true);
    print_more(show, length - rows, "row", "rows");
    print_more(show, count - shown, "column to the right", "columns to the right");
}

static void show_table(const struct show *show)
{
    bool table = gpubuf_kind(show->object) == GPUBUF_KIND_TABLE;
    size_t count = table ? gpubuf_child_count(show->object) : 1;
    struct gb_series *series = gb_new(count, sizeof(*series));

    for (size_t i = 0; i < count; i++) {
        struct gpubuf_object *column = table ? NULL : gpubuf_retain(show->object);
        if (table)
            gb_cli_check(show->cli, gpubuf_child(show->object, i, &column), "cannot show %s",
                         show->name);
        gb_series_init(&series[i], column);
        series[i].held = column;
    }
    print_columns(show, series, count);
    print_rows(show, series, count, gpubuf_length(show->object));
    for (size_t i = 0; i < count; i++)
        gb_series_end(&series[i]);
    free(series);
}

/* ---- arrays --------------------------------------------------------------------------------- */

/* An array of one axis is printed along the line; of more, a line for each index of the first, with
   the rest in C order. */
static void show_array(const struct show *show)
{
    struct gb_series series;
    struct gb_grid grid;

    gb_series_init(&series, show->object);
    uint64_t rows = series.ndim > 1 ? series.shape[0] : 1;
    uint64_t items = series.length == 0 ? 0 : series.length / rows;
    uint64_t shown_rows = rows < show->rows ? rows : show->rows;
    size_t columns = items < ROW_ITEMS ? (size_t)items : ROW_ITEMS;
    if (series.length > 0 && shown_rows > 0) {
        gb_grid_init(&grid, columns + (series.ndim > 1));
        grid.longest = LONGEST_CELL;
        for (size_t i = 0; i < grid.column_count; i++)
            grid.columns[i].right = true;
        for (uint64_t row = 0; row < shown_rows; row++) {
            if (series.ndim > 1)
                gb_grid_format(&grid, GB_STYLE_DIM, "%" PRIu64, row);
            for (uint64_t i = 0; i < columns; i++)
                add_value(&series, row * items + i, &grid);
        }
        putchar('\n');
        size_t shown = gb_grid_print(&grid, show->width, 2, show->cli->color, true);
        shown -= series.ndim > 1;
        print_more(show, rows - shown_rows, "row", "rows");
        print_more(show, items - shown, series.ndim > 1 ? "to the right" : "element",
                   series.ndim > 1 ? "to the right" : "elements");
    }
    gb_series_end(&series);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void show_bytes(const struct show *show)
{
    enum { LINE = 16 };
    struct gb_series series;

    gb_series_init(&series, show->object);
    uint64_t most = series.length / LINE < show->rows ? series.length : show->rows * LINE;
    if (most > 0)
        putchar('\n');
    for (uint64_t at = 0; at < most; at += LINE) {
        uint64_t count = most - at < LINE ? most - at : LINE;
        printf("  %s%08" PRIx64 "%s ", gb_style_on(show->cli->color, GB_STYLE_DIM), at,
               gb_style_off(show->cli->color, GB_STYLE_DIM));
        for (uint64_t i = 0; i < LINE; i++) {
            printf("%s", i % 8 ? " " : "  ");
            if (i < count)
                printf("%02x", series.data[at + i]);
            else
                printf("  ");
        }
        printf("  ");
        for (uint64_t i = 0; i < count; i++) {
            unsigned char byte = series.data[at + i];
            putchar(byte >= 0x20 && byte < 0x7f ? byte : '.');
        }
        putchar('\n');
    }
    print_more(show, series.length - most, "byte", "bytes");
    gb_series_end(&series);
}

/* ---- bundles -------------------------------------------------------------------------------- */

static void write_shape(const struct gpubuf_tensor *tensor, struct gb_writer *writer)
{
    for (unsigned i = 0; i < tensor->ndim; i++)
        gb_write_format(writer, "%s%" PRIu64, i ? " × " : "", tensor->shape[i]);
}

static void add_tensor(struct gb_grid *grid, const struct gpubuf_tensor *tensor)
{
    struct gb_writer shape;

    gb_writer_init(&shape, 0);
    write_shape(tensor, &shape);
    gb_grid_text(grid, tensor->name, GB_STYLE_BOLD);
    gb_grid_text(grid, tensor->dtype, GB_STYLE_NONE);
    gb_grid_add(grid, shape.length ? shape.data : "", shape.length, GB_STYLE_NONE);
    gb_grid_text(grid, gb_size(tensor->bytes).text, GB_STYLE_NONE);
    gb_writer_end(&shape);
}

static void print_metadata(const struct show *show)
{
    const char *key, *value;
    struct gb_grid grid;

    gb_grid_init(&grid, 2);
    grid.longest = 60;
    for (size_t i = 0; gpubuf_bundle_metadata_at(show->bundle, i, &key, &value) == 0; i++) {
        gb_grid_text(&grid, key, GB_STYLE_DIM);
        gb_grid_text(&grid, value, GB_STYLE_NONE);
    }
    gb_grid_print(&grid, show->width, 2, show->cli->color, false);
}

/* One line for each array: its name, dtype, shape and size. */
static void show_bundle(const struct show *show)
{
    static const char *const titles[] = {"array", "dtype", "shape", "size"};
    uint64_t count = gpubuf_bundle_count(show->bundle);
    uint64_t rows = count < show->rows ? count : show->rows;
    struct gb_grid grid;

    print_metadata(show);
    gb_grid_init(&grid, 4);
    grid.longest = 80;
    grid.columns[0].flexible = true;
    grid.columns[3].right = true;
    for (size_t i = 0; i < 4; i++)
        gb_grid_text(&grid, titles[i], GB_STYLE_DIM);
    for (size_t i = 0; i < rows; i++)
        add_tensor(&grid, gpubuf_bundle_at(show->bundle, i));
    putchar('\n');
    gb_grid_print(&grid, show->width, 2, show->cli->color, false);
    print_more(show, count - rows, "array", "arrays");
}

static cJSON *shape_json(unsigned ndim, const uint64_t *shape)
{
    cJSON *list = cJSON_CreateArray();

    for (unsigned i = 0; i < ndim; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)shape[i]));
    return list;
}

static void add_bundle_json(const struct gpubuf_bundle *bundle, cJSON *out)
{
    cJSON *metadata = cJSON_AddObjectToObject(out, "metadata");
    cJSON *arrays = cJSON_AddArrayToObject(out, "arrays");
    const char *key, *value;

    for (size_t i = 0; gpubuf_bundle_metadata_at(bundle, i, &key, &value) == 0; i++)
        cJSON_AddStringToObject(metadata, key, value);
    for (size_t i = 0; i < gpubuf_bundle_count(bundle); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        cJSON *item = gb_cjson("{'name':%s,'dtype':%s,'offset':%" PRIu64 ",'bytes':%" PRIu64 "}",
                               tensor->name, tensor->dtype, tensor->offset, tensor->bytes);
        cJSON_AddItemToObject(item, "shape", shape_json(tensor->ndim, tensor->shape));
        cJSON_AddItemToArray(arrays, item);
    }
}

/* ---- the command ---------------------------------------------------------------------------- */

static void print_title(const struct show *show)
{
    bool color = show->cli->color;
    struct gb_writer name, text;

    gb_writer_init(&name, 0);
    gb_writer_init(&text, 0);
    gb_text_clean(&name, show->name, strlen(show->name));
    gb_describe(show->object, &text);
    printf("%s%s%s  %s %s· version %" PRIu64 ", %s%s\n", gb_style_on(color, GB_STYLE_BOLD),
           gb_writer_text(&name), gb_style_off(color, GB_STYLE_BOLD), gb_writer_text(&text),
           gb_style_on(color, GB_STYLE_DIM), gpubuf_object_version(show->object),
           gpubuf_device(show->object), gb_style_off(color, GB_STYLE_DIM));
    gb_writer_end(&name);
    gb_writer_end(&text);
}

static void show_object(const struct show *show)
{
    print_title(show);
    switch (gpubuf_kind(show->object)) {
    case GPUBUF_KIND_BYTES:
        show_bytes(show);
        break;
    case GPUBUF_KIND_ARRAY:
        show_array(show);
        break;
    case GPUBUF_KIND_BUNDLE:
        show_bundle(show);
        break;
    default:
        show_table(show);
    }
}

/* --json: the columns with their types and nulls, the dtype and shape, or the arrays; no values. */
static void print_json(const struct show *show)
{
    static const char *const kinds[] = {"bytes", "array", "column", "table", "bundle"};
    struct gpubuf_object *object = show->object;
    cJSON *out =
        gb_cjson("{'name':%s,'version':%" PRIu64 ",'device':%s,'kind':%s,'length':%" PRIu64 "}",
                 gpubuf_name(object), gpubuf_object_version(object), gpubuf_device(object),
                 kinds[gpubuf_kind(object)], gpubuf_length(object));

    if (gpubuf_dtype(object)[0])
        cJSON_AddStringToObject(out, "dtype", gpubuf_dtype(object));
    if (gpubuf_kind(object) == GPUBUF_KIND_ARRAY)
        cJSON_AddItemToObject(out, "shape", shape_json(gpubuf_ndim(object), gpubuf_shape(object)));
    if (show->bundle) {
        add_bundle_json(show->bundle, out);
    } else if (gpubuf_kind(object) == GPUBUF_KIND_TABLE) {
        cJSON *columns = cJSON_AddArrayToObject(out, "columns");
        for (size_t i = 0; i < gpubuf_child_count(object); i++) {
            struct gpubuf_object *column = NULL;
            if (gpubuf_child(object, i, &column) < 0)
                break;
            cJSON_AddItemToArray(columns, gb_cjson("{'name':%s,'dtype':%s,'nulls':%" PRId64 "}",
                                                   gpubuf_column_name(column), gpubuf_dtype(column),
                                                   gpubuf_null_count(column)));
            gpubuf_release(column);
        }
    } else {
        cJSON_AddNumberToObject(out, "nulls", (double)gpubuf_null_count(object));
    }
    gb_cjson_print(out, true);
    cJSON_Delete(out);
}

void gb_cmd_show(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct show show = {.cli = cli, .name = args->value[0], .width = gb_term_width()};
    struct gb_view_options options = {
        .column = args->option[COLUMN],
        .slice = args->option[SLICE],
        .version = args->number[VERSION],
        .label = args->option[LABEL],
        .wait_ms = args->number[WAIT],
    };

    show.rows = args->option[ROWS] ? (uint64_t)args->number[ROWS] : 10;
    show.object = gb_view_open(cli, show.name, &options);
    if (gpubuf_kind(show.object) == GPUBUF_KIND_BUNDLE) {
        gb_cli_check(cli, gpubuf_bundle_open(show.object, &show.bundle), "cannot show %s",
                     show.name);
        if (!args->option[ROWS])
            show.rows = UINT64_MAX;
    }
    gb_cli_about("cannot show %s", show.name);
    if (cli->json)
        print_json(&show);
    else
        show_object(&show);
    gpubuf_bundle_free(show.bundle);
    gpubuf_release(show.object);
}
