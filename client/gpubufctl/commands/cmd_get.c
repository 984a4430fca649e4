/* gpubufctl get NAME */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/data/csv_write.h"
#include "client/gpubufctl/data/file.h"
#include "client/gpubufctl/data/python.h"
#include "client/gpubufctl/data/series.h"
#include "client/gpubufctl/data/view.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"

enum { FORMAT, COLUMN, SLICE, VERSION, LABEL, WAIT };

const struct gb_cli_option gb_get_options[] = {
    {"format", 'f', "FORMAT",
     "csv, safetensors, raw, npy, npz, jsonl, arrow, arrows or parquet (by FILE)",
     "csv safetensors raw npy npz jsonl arrow arrows parquet"},
    {"column", 'c', "COLUMN", "only this column of a table", NULL},
    {"slice", 's', "A:B", "only rows, elements or bytes A to B (not included)", NULL},
    {"version", 'v', "VERSION", "this version, if it still exists", NULL},
    {"label", 'l', "LABEL", "the newest version with this label", NULL},
    {"wait", 'w', "TIME", "how long to wait for the object to exist", NULL},
    {0},
};

enum format { FORMAT_CSV, FORMAT_SAFETENSORS, FORMAT_RAW, FORMAT_NONE };

static const char *const formats[] = {"csv", "safetensors", "raw"};

#define BUNDLE_PIECE ((uint64_t)4 << 20) /* bytes that are read from a GPU at a time */

struct get {
    struct gb_cli *cli;
    const char *name;
    struct gpubuf_object *object;
    struct gb_output output;
    struct gb_progress progress;
    uint64_t written; /* bytes of a bundle */
};

/* ---- elements as bytes ---------------------------------------------------------------------- */

/* Writes all elements in C order. Stops early if the stream has an error. */
static void write_items(struct get *get, const struct gb_series *series)
{
    enum { CHUNK = 1 << 20 };
    uint64_t size = series->item_bytes;
    uint64_t items = gb_dtype_items(&series->dtype, series->length, true);
    FILE *file = get->output.file;

    if (series->c_order) {
        const unsigned char *data = series->length ? gb_series_item(series, 0) : NULL;
        uint64_t total = items * size;
        for (uint64_t done = 0; done < total && !ferror(file); done += CHUNK) {
            uint64_t bytes = total - done < CHUNK ? total - done : CHUNK;
            fwrite(data + done, 1, bytes, file);
            gb_progress_update(&get->progress, done);
        }
        return;
    }
    for (uint64_t i = 0; i < items && !ferror(file); i++) {
        fwrite(gb_series_item(series, i), 1, size, file);
        if (i % 4096 == 0)
            gb_progress_update(&get->progress, i * size);
    }
}

/* Bit-packed booleans, a byte each. */
static void write_bools(struct get *get, const struct gb_series *series)
{
    for (uint64_t i = 0; i < series->length && !ferror(get->output.file); i++)
        fputc(gb_series_bit(series, i) ? 1 : 0, get->output.file);
}

/* ---- formats -------------------------------------------------------------------------------- */

/* Strings and binaries: their bytes, one element after the other. */
static void get_raw(struct get *get, const struct gb_series *series)
{
    if (series->dtype.type == GB_TYPE_BOOL) {
        write_bools(get, series);
    } else if (series->item_bytes > 0) {
        write_items(get, series);
    } else if (!series->info->has_data) {
        gb_cli_fail(GB_STATUS_FAILED, "cannot get %s as raw bytes: it is of type %s; write .csv",
                    get->name, gpubuf_dtype(get->object));
    } else {
        for (uint64_t i = 0; i < series->length && !ferror(get->output.file); i++) {
            size_t length = 0;
            const char *text =
                gb_series_valid(series, i) ? gb_series_bytes(series, i, &length) : "";
            fwrite(text, 1, length, get->output.file);
        }
    }
}

/* An array of two axes has columns named by their index; one of one axis, the column "value". */
static void get_array_csv(struct get *get, const struct gb_series *series)
{
    if (series->ndim > 2 || gpubuf_kind(get->object) == GPUBUF_KIND_BYTES)
        gb_cli_fail(GB_STATUS_FAILED,
                    "cannot get %s as .csv: only tables, columns and arrays of one or two axes can "
                    "be; write raw bytes%s",
                    get->name, series->ndim > 2 ? " or .npy" : "");
    uint64_t columns = series->ndim == 2 ? series->shape[1] : 1;
    uint64_t rows = series->ndim == 2 ? series->shape[0] : series->length;
    if (columns > 100000)
        gb_cli_fail(GB_STATUS_FAILED,
                    "cannot get %s as .csv: %" PRIu64 " columns are too many; write .npy",
                    get->name, columns);
    struct gb_csv_source *sources = gb_new(columns, sizeof(*sources));
    char(*names)[24] = gb_new(columns, sizeof(*names));
    for (uint64_t i = 0; i < columns; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%" PRIu64, i);
        sources[i] = (struct gb_csv_source){names[i], series, i, columns};
        if (series->ndim != 2)
            sources[i].name = series->name ? series->name : "value";
    }
    gb_csv_write(get->output.file, sources, columns, rows, &get->progress);
    free(sources);
    free(names);
}

static void get_rows(struct get *get)
{
    size_t count = gpubuf_child_count(get->object);
    uint64_t rows = gpubuf_length(get->object);
    struct gb_series *series = gb_new(count, sizeof(*series));
    struct gb_csv_source *sources = gb_new(count, sizeof(*sources));

    for (size_t i = 0; i < count; i++) {
        struct gpubuf_object *column = NULL;
        if (gpubuf_child(get->object, i, &column) < 0)
            gb_cli_refuse(GPUBUF_E_INVALID, "%s", gpubuf_object_errmsg(get->object));
        gb_series_init(&series[i], column);
        series[i].held = column;
        sources[i] = (struct gb_csv_source){series[i].name, &series[i], 0, 1};
    }
    gb_csv_write(get->output.file, sources, count, rows, &get->progress);
    for (size_t i = 0; i < count; i++)
        gb_series_end(&series[i]);
    free(series);
    free(sources);
}

/* Ends if the library has failed. */
static void check_read(const struct get *get, int code)
{
    gb_cli_check(get->cli, code, "cannot read %s", get->name);
}

/* Bytes of a bundle; `stage` is for those on a GPU. */
static void write_bytes(struct get *get, const char *memory, char *stage, uint64_t at,
                        uint64_t bytes)
{
    for (uint64_t done = 0, piece; done < bytes && !ferror(get->output.file); done += piece) {
        piece = bytes - done < BUNDLE_PIECE ? bytes - done : BUNDLE_PIECE;
        if (stage)
            check_read(get, gpubuf_read(get->object, GPUBUF_DATA, at + done, stage, piece, NULL));
        fwrite(stage ? stage : memory + at + done, 1, (size_t)piece, get->output.file);
        get->written += piece;
        gb_progress_update(&get->progress, get->written);
    }
}

/* A bundle is written as it lies in memory, where it is a .safetensors file already. */
static void get_bundle(struct get *get, enum format format)
{
    struct gpubuf_memory memory;
    struct gpubuf_bundle *bundle = NULL;
    char *stage = NULL;

    check_read(get, gpubuf_memory(get->object, GPUBUF_DATA, &memory));
    check_read(get, gpubuf_wait_ready(get->object, NULL));
    if (format == FORMAT_SAFETENSORS)
        check_read(get, gpubuf_bundle_open(get->object, &bundle));
    if (gpubuf_device_ordinal(get->object) >= 0)
        stage = gb_grow(NULL, BUNDLE_PIECE, 1);
    get->progress.total = memory.bytes;
    write_bytes(get, memory.pointer, stage, 0, memory.bytes);
    free(stage);
    gpubuf_bundle_free(bundle);
}

/* Refuses a format that such an object has not. */
static void check_format(const struct get *get, enum format format)
{
    enum gpubuf_kind kind = gpubuf_kind(get->object);
    bool bundle = kind == GPUBUF_KIND_BUNDLE;

    if (bundle ? format == FORMAT_CSV : format == FORMAT_SAFETENSORS)
        gb_cli_fail(GB_STATUS_FAILED,
                    bundle ? "cannot get %s in this format: it is a bundle; write .safetensors"
                           : "cannot get %s as .safetensors: it is no bundle",
                    get->name);
    if (kind == GPUBUF_KIND_TABLE && format == FORMAT_RAW)
        gb_cli_fail(
            GB_STATUS_FAILED,
            "cannot get %s as raw bytes: it is a table; write .csv, or choose a column with "
            "--column",
            get->name);
}

static void get_part(struct get *get, enum format format)
{
    struct gb_series series;

    check_format(get, format);
    if (gpubuf_kind(get->object) == GPUBUF_KIND_BUNDLE) {
        get_bundle(get, format);
        return;
    }
    if (gpubuf_kind(get->object) == GPUBUF_KIND_TABLE) {
        get_rows(get);
        return;
    }
    gb_series_init(&series, get->object);
    if (format == FORMAT_CSV)
        get_array_csv(get, &series);
    else
        get_raw(get, &series);
    gb_series_end(&series);
}

/* ---- the command ---------------------------------------------------------------------------- */

static enum format find_format(const char *name)
{
    for (int i = 0; i < FORMAT_NONE; i++)
        if (strcmp(formats[i], name) == 0)
            return (enum format)i;
    return FORMAT_NONE;
}

static enum format choose_format(const struct get *get, const char *asked, const char *file)
{
    bool pipe = strcmp(file, "-") == 0, terminal = pipe && isatty(STDOUT_FILENO);
    enum gpubuf_kind kind = gpubuf_kind(get->object);
    bool rows = kind != GPUBUF_KIND_BYTES && kind != GPUBUF_KIND_BUNDLE;
    enum format format = asked                                ? find_format(asked)
                         : gb_ends_with(file, ".csv")         ? FORMAT_CSV
                         : gb_ends_with(file, ".safetensors") ? FORMAT_SAFETENSORS
                         : pipe && (kind == GPUBUF_KIND_TABLE || (terminal && rows)) ? FORMAT_CSV
                                                                                     : FORMAT_RAW;

    if (terminal && format != FORMAT_CSV)
        gb_cli_usage(get->cli, "binary data do not go to a terminal; give a FILE, %s",
                     rows ? "or --format csv" : "or look at it by gpubufctl show");
    return format;
}

static void write_output(struct get *get, const char *file, enum format format)
{
    gb_output_open(&get->output, file);
    gb_cli_about("cannot get %s", get->name);
    gb_progress_begin(&get->progress, get->name, 0);
    get_part(get, format);
    gb_progress_end(&get->progress);
    gb_output_commit(&get->output);
}

static cJSON *bound(bool there, int64_t at)
{
    return there ? cJSON_CreateNumber((double)at) : cJSON_CreateNull();
}

/* Has the Python package write a file of its format. */
static void hand_over(struct gb_cli *cli, const char *name, const struct gb_view_options *options,
                      const char *file, const char *format)
{
    struct gb_slice_text slice = {0};
    struct gb_error error;

    if (strcmp(file, "-") == 0)
        gb_cli_usage(cli, "--format %s needs a FILE", format);
    if (options->slice && gb_parse_slice(options->slice, &slice, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    cJSON *request = gb_cjson("{'do':'get','name':%s,'path':%s,'format':%s,'version':%" PRId64 "}",
                              name, file, format, options->version);
    cJSON_AddNumberToObject(request, "timeout", (double)options->wait_ms / 1000);
    if (options->column)
        cJSON_AddStringToObject(request, "column", options->column);
    cJSON *ends = options->slice ? cJSON_AddArrayToObject(request, "slice") : NULL;
    cJSON_AddItemToArray(ends, options->slice ? bound(slice.has_start, slice.start) : NULL);
    cJSON_AddItemToArray(ends, options->slice ? bound(slice.has_stop, slice.stop) : NULL);
    cJSON_Delete(gb_python_run(cli, request, file));
}

void gb_cmd_get(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct get get = {.cli = cli, .name = args->value[0]};
    const char *file = args->count > 1 ? args->value[1] : "-";
    const char *asked = args->option[FORMAT];
    struct gb_view_options options = {
        .column = args->option[COLUMN],
        .slice = args->option[SLICE],
        .version = args->number[VERSION],
        .label = args->option[LABEL],
        .wait_ms = args->number[WAIT],
    };

    const char *python = asked ? asked : gb_python_format(file, NULL, 0);
    if (python && gb_python_is_format(python)) {
        hand_over(cli, get.name, &options, file, python);
        return;
    }
    get.object = gb_view_open(cli, get.name, &options);
    write_output(&get, file, choose_format(&get, asked, file));
    gpubuf_release(get.object);
}
