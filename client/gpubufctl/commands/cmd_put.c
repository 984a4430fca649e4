/* gpubufctl put NAME FILE, and put FILE.safetensors [NAME] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/data/put.h"
#include "client/gpubufctl/data/python.h"
#include "client/gpubufctl/data/view.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "proto/base/limits.h"
#include "proto/layout/layout.h"

enum {
    FORMAT,
    DTYPE,
    SHAPE,
    KIND,
    DEVICE,
    SHARE,
    MODE,
    REPLACE,
    LABEL,
    KEEP,
    TTL,
    EVICT,
    FINAL,
    CLUSTER,
    WAIT,
    DELIMITER
};

const struct gb_cli_option gb_put_options[] = {
    {"format", 'f', "FORMAT",
     "csv, safetensors, raw, npy, npz, jsonl, arrow, arrows or parquet (by the file)",
     "csv safetensors raw npy npz jsonl arrow arrows parquet"},
    {"dtype", 'd', "DTYPE", "type of the elements of a raw file, such as float32", NULL},
    {"shape", 's', "SHAPE", "extents of a raw file, such as 3,4 (all in one axis)", NULL},
    {"kind", 'k', "KIND", "what to make of it: bytes, array, column or table",
     "bytes array column table"},
    {"device", 'D', "DEVICE", "where to put it (the daemon's default)", "host"},
    {"share", 0, "HOW", "fd or ipc (fd)", "fd ipc"},
    {"mode", 'm', "MODE", "who may open (4) and replace (2) it, octal (600)",
     "600 640 644 660 666"},
    {"replace", 'r', NULL, "take the name from an object that has it", NULL},
    {"label", 'l', "LABEL", "label of this version, such as step-42", NULL},
    {"keep", 0, "N", "how many older versions can still be opened: 0 to 8 (0)", "1 2 4 8"},
    {"ttl", 't', "TIME", "delete it after this time: 90s, 5m, 2h, 1d", NULL},
    {"evict", 'e', "WHAT", "when memory is short: spill, drop or keep (the daemon's)",
     "spill drop keep"},
    {"final", 'F', NULL, "nobody can change it, not even you (host memory)", NULL},
    {"cluster", 'c', NULL, "share it with other machines (by gpubufd-peer)", NULL},
    {"wait", 'w', "TIME", "how long to wait for memory (0)", NULL},
    {"delimiter", 0, "CHAR", "between a CSV file's fields: ';', '|', tab (a comma)", "tab"},
    {0},
};

static void read_placement(struct gb_put *put, const struct gb_cli_args *args)
{
    put->create = (struct gpubuf_create_options){
        .size = sizeof(put->create),
        .device = args->option[DEVICE],
        .share = args->option[SHARE],
        .mode = (unsigned)args->number[MODE],
        .ttl_ms = args->number[TTL],
        .evict = (enum gpubuf_evict)args->number[EVICT],
        .wait_ms = args->number[WAIT],
        .replace = args->option[REPLACE] != NULL,
        .final = args->option[FINAL] != NULL,
        .label = args->option[LABEL],
        .keep = (unsigned)args->number[KEEP],
        .scope = args->option[CLUSTER] ? GPUBUF_SCOPE_CLUSTER : GPUBUF_SCOPE_LOCAL,
    };
    put->kind = (enum gb_put_kind)args->number[KIND];
    if (args->number[KEEP] > GB_LIMIT(keep))
        gb_cli_usage(put->cli, "--keep is from 0 to %d, not \"%s\"", (int)GB_LIMIT(keep),
                     args->option[KEEP]);
}

static void read_type(struct gb_put *put, const struct gb_cli_args *args)
{
    const char *dtype = args->option[DTYPE], *shape = args->option[SHAPE];
    struct gb_error error;

    if (dtype) {
        if (!gb_dtype_parse(dtype, strlen(dtype), &put->dtype) ||
            !gb_type_info(put->dtype.type)->array)
            gb_cli_usage(put->cli,
                         "\"%s\" is no dtype of an array; expected one such as int32, float64 or "
                         "timestamp[ms]",
                         dtype);
        put->has_dtype = true;
    }
    if (shape) {
        if (!dtype)
            gb_cli_usage(put->cli, "--shape needs --dtype");
        if (gb_parse_shape(shape, put->shape, &put->ndim, &error) != 0)
            gb_cli_fail(GB_STATUS_FAILED, "%s", error.message);
        put->has_shape = true;
    }
}

/* The character that an option gives. 0: the text is not one character. */
static char read_character(const char *text)
{
    if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0)
        return '\t';
    bool fits = strlen(text) == 1 && text[0] > 0 && !strchr("\"\r\n", text[0]);
    return fits ? text[0] : '\0';
}

/* True: the option for CSV files is given, and so the file is read as CSV. */
static bool read_delimiter(struct gb_put *put, const char *text)
{
    put->delimiter = text ? read_character(text) : '\0';
    if (text && !put->delimiter)
        gb_cli_usage(put->cli, "--delimiter is one character, or tab, not \"%s\"", text);
    return text != NULL;
}

static bool is_safetensors(const char *file)
{
    return gb_ends_with(file, ".safetensors") || gb_ends_with(file, ".safetensors.index.json");
}

/* An index is JSON, and names the files that it is about. */
static void (*choose_safetensors(const char *file))(struct gb_put *)
{
    return gb_ends_with(file, ".json") ? gb_put_shards : gb_put_safetensors;
}

/* The format that was asked for, or that the file's name or its start tells. */
static void (*choose_format(struct gb_put *put, const struct gb_cli_args *args, const char *file,
                            bool csv))(struct gb_put *)
{
    const char *format = args->option[FORMAT];

    if (format)
        return strcmp(format, "csv") == 0           ? gb_put_csv
               : strcmp(format, "safetensors") == 0 ? choose_safetensors(file)
               : strcmp(format, "raw") == 0         ? gb_put_raw
                                                    : NULL;
    if (is_safetensors(file))
        return choose_safetensors(file);
    bool foreign = gb_python_format(file, put->start, put->start_length) != NULL;
    if (gb_ends_with(file, ".csv") || gb_ends_with(file, ".tsv") || (csv && !foreign))
        return gb_put_csv;
    if (put->has_dtype)
        return gb_put_raw;
    return put->kind == GB_PUT_TABLE && !foreign ? gb_put_csv : gb_put_raw;
}

/* "movies: table, 3201 rows × 16 columns, version 1" */
static void print_outcome(const struct gb_put *put)
{
    struct gpubuf_object *object = put->object;
    uint64_t version = gpubuf_object_version(object);

    if (put->cli->json) {
        gb_cjson_print_pattern("{'name':%s,'version':%" PRIu64 "}", put->name, version);
        return;
    }
    struct gb_writer text;
    gb_writer_init(&text, 0);
    gb_text_clean(&text, put->name, strlen(put->name));
    GB_WRITE_LITERAL(&text, ": ");
    gb_describe(object, &text);
    gb_write_format(&text, ", version %" PRIu64, version);
    gb_progress_rate(&put->progress, put->input.done, &text);
    GB_WRITE_LITERAL(&text, "\n");
    gb_cli_print(&text);
}

/* Has the Python package publish the file, opens what it has published, and tells of each. */
static void hand_over(struct gb_put *put, const char *format, const char *file)
{
    cJSON *names = gb_put_python(put, format, file);

    if (put->cli->json && cJSON_GetArraySize(names) != 1) {
        gb_cjson_print(names, true);
        cJSON_Delete(names);
        return;
    }
    gb_cli_connect(put->cli);
    GB_CJSON_EACH(name, names) {
        put->name = name->valuestring;
        gpubuf_release(put->object);
        put->object = NULL;
        gb_cli_check(put->cli, gpubuf_open(put->cli->client, put->name, NULL, &put->object),
                     "cannot open %s", put->name);
        print_outcome(put);
    }
    cJSON_Delete(names);
}

/* Refuses options that are not for files of the format that this one is read as. */
static void check_options(const struct gb_put *put, void (*read)(struct gb_put *), bool csv)
{
    if (csv && read != gb_put_csv)
        gb_cli_usage(put->cli, "--delimiter is for CSV files");
    if (put->has_dtype && read != gb_put_raw)
        gb_cli_usage(put->cli,
                     "--dtype is for raw files, and this one is read as %s: leave --dtype out, or "
                     "give --format raw to take the file's bytes as they are",
                     read == gb_put_csv ? "CSV"
                     : read             ? ".safetensors"
                                        : "what it is");
}

static void read_and_seal(struct gb_put *put, const char *file, void (*read)(struct gb_put *))
{
    put->input.progress = &put->progress;
    gb_progress_begin(&put->progress, put->name,
                      put->input.bytes == GB_FILE_UNKNOWN ? 0 : put->input.bytes);
    read(put);
    gb_progress_end(&put->progress);
    gb_put_finish(put);
    gb_cli_check(put->cli, gpubuf_seal(put->object, put->null_counts), "cannot seal %s", put->name);
    print_outcome(put);
}

static void publish(struct gb_put *put, const struct gb_cli_args *args, const char *file)
{
    const char *format = args->option[FORMAT], *python = NULL;
    bool csv = read_delimiter(put, args->option[DELIMITER]);

    if (gb_ends_with(file, ".tsv") && !put->delimiter)
        put->delimiter = '\t';
    put->start_length = (size_t)gb_input_read(&put->input, put->start, sizeof(put->start));
    void (*read)(struct gb_put *) = choose_format(put, args, file, csv);
    if (format && gb_python_is_format(format))
        python = format;
    bool guessed = read == gb_put_raw && !format && put->kind != GB_PUT_BYTES;
    if (guessed) /* with --dtype the file's first bytes are elements, whatever they look like */
        python = gb_python_format(file, put->start, put->has_dtype ? 0 : put->start_length);
    check_options(put, python ? NULL : read, csv);
    if (python) {
        hand_over(put, python, file);
        return;
    }
    if (guessed && !put->has_dtype)
        gb_put_check_name(put, file);
    if (put->input.bytes == GB_FILE_UNKNOWN)
        gb_put_bound(put, read == gb_put_csv);
    read_and_seal(put, file, read);
}

/* The name for a file that is published without one: the file's own name without its suffix, as in
   Python's load(). To be freed. */
static char *name_after(const struct gb_cli *cli, const char *file)
{
    const char *slash = strrchr(file, '/'), *start = slash ? slash + 1 : file;
    const char *index = is_safetensors(file) && gb_ends_with(file, ".json")
                            ? start + strlen(start) - strlen(".safetensors.index.json")
                            : NULL;
    const char *suffix = index ? index : strrchr(start, '.');

    if (!suffix || suffix <= start)
        gb_cli_usage(cli, "put takes a NAME and a FILE; the name may be left out for a file with a "
                          "suffix, which is then its name without that");
    return gb_copy(start, (size_t)(suffix - start));
}

void gb_cmd_put(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct gb_put put = {.cli = cli};
    const char *first = args->value[0], *second = args->count > 1 ? args->value[1] : NULL;
    bool file_first = !second || (is_safetensors(first) && !is_safetensors(second));
    const char *file = file_first ? first : second;
    char *name = second ? NULL : name_after(cli, first);
    const struct gb_path path = {.key = "NAME"};
    struct gb_error error;

    put.name = name ? name : file_first ? second : first;
    read_placement(&put, args);
    read_type(&put, args);
    if (gb_name_check(put.name, strlen(put.name), &path, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    gb_input_open(&put.input, file);
    gb_cli_about("%s", put.input.name);
    publish(&put, args, file);
    gb_put_end(&put);
    gb_input_close(&put.input);
    free(name);
}
