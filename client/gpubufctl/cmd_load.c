/* gpubufctl load DIR: publishes what `save` wrote. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "file.h"
#include "format.h"
#include "json_print.h"
#include "parse.h"
#include "proto/handle.h"
#include "snapshot.h"

enum { REPLACE, DEVICE, WAIT, VERBOSE };

const struct gb_cli_option gb_load_options[] = {
    {"replace", 'r', NULL, "take names from objects that have them", NULL},
    {"device", 'D', "DEVICE", "where to put what was on a GPU (the same one)", "host"},
    {"wait", 'w', "TIME", "how long to wait for memory, for each object (0)", NULL},
    {"verbose", 'v', NULL, "name those that were left out as they exist", NULL},
    {0},
};

struct load {
    struct gb_cli *cli;
    const char *directory;
    bool replace, verbose;
    const char *device;
    int64_t wait_ms;
    struct gb_progress progress;
    struct gb_snapshot_file file;
    uint64_t bytes;                   /* of what has been loaded */
    cJSON *loaded, *skipped, *failed; /* names */
};

/* ---- the manifest ---- */

static char *read_text(const char *path)
{
    struct gb_input input;

    gb_input_open(&input, path);
    if (input.bytes == GB_FILE_UNKNOWN || input.bytes > SIZE_MAX / 2)
        gb_cli_refuse(GPUBUF_E_INVALID, "%s is no regular file, or too large for memory", path);
    char *text = gb_grow(NULL, input.bytes + 1, 1);
    uint64_t got = gb_input_read(&input, text, input.bytes);
    text[got] = '\0';
    if (strlen(text) != got)
        gb_cli_refuse(GPUBUF_E_INVALID, "%s: byte %zu is no text", path, strlen(text));
    gb_input_close(&input);
    return text;
}

/* Reads the manifest. It has to be of a version that is read here, and its checksum right. */
static cJSON *read_manifest(const char *directory)
{
    char *path = gb_text("%s/manifest.json", directory), *text = read_text(path);
    cJSON *manifest = gb_cjson_parse(text);
    const cJSON *objects = gb_cjson_member(manifest, "objects");
    char sum[GB_SNAPSHOT_SUM] = "";

    free(text);
    if (!manifest)
        gb_cli_refuse(GPUBUF_E_INVALID, "%s is damaged: it is no JSON", path);
    if (strcmp(gb_cjson_string_of(manifest, "format", ""), "gpubufd snapshot") != 0)
        gb_cli_refuse(GPUBUF_E_INVALID, "%s is no manifest of a snapshot", path);
    if (gb_cjson_int_of(manifest, "version", 0) != 1)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "%s is of a later version of snapshots than this gpubufctl reads", path);
    text = gb_cjson_text(objects);
    gb_snapshot_sum(text, sum);
    if (!cJSON_IsArray(objects) || strcmp(gb_cjson_string_of(manifest, "xxh3", ""), sum) != 0)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "%s is damaged: its objects have another checksum than it tells", path);
    free(text);
    free(path);
    return manifest;
}

/* ---- objects ---- */

static int read_options(const struct load *load, const cJSON *entry,
                        struct gpubuf_create_options *options, struct gb_error *error)
{
    static const char *const evicts[] = {"spill", "drop", "keep"};
    const char *device = gb_cjson_string_of(entry, "device", "host");
    const char *evict = gb_cjson_string_of(entry, "evict", "");

    *options = (struct gpubuf_create_options){
        .size = sizeof(*options),
        .device = load->device && !gb_is_host(device) ? load->device : device,
        .share = gb_cjson_string_of(entry, "share", NULL),
        .replace = load->replace,
        .ttl_ms = gb_cjson_int_of(entry, "ttl_ms", 0),
        .wait_ms = load->wait_ms,
        .final = gb_cjson_bool_of(entry, "final"),
        .label = gb_cjson_string_of(entry, "label", NULL),
        .keep = (unsigned)gb_cjson_int_of(entry, "keep", 0),
    };
    if (strcmp(gb_cjson_string_of(entry, "scope", ""), "cluster") == 0)
        options->scope = GPUBUF_SCOPE_CLUSTER;
    if (strcmp(options->device, device) != 0) /* how it was shared there */
        options->share = NULL;
    for (int i = 0; i < 3; i++)
        if (strcmp(evicts[i], evict) == 0)
            options->evict = (enum gpubuf_evict)(GPUBUF_EVICT_SPILL + i);
    int64_t mode = 0;
    int r = gb_parse_mode(gb_cjson_string_of(entry, "mode", "600"), &mode, error);
    options->mode = (unsigned)mode;
    return r;
}

static int open_data(struct load *load, const cJSON *entry, char **path, struct gb_error *error)
{
    const char *file = gb_cjson_string_of(entry, "file", "");
    struct stat status;

    if (!file[0] || strchr(file, '/'))
        return gb_fail(error, GPUBUF_E_INVALID, "the manifest names no file");
    *path = gb_text("%s/%s", load->directory, file);
    load->file.path = *path;
    load->file.fd = open(*path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (load->file.fd < 0 || fstat(load->file.fd, &status) != 0)
        return gb_fail_errno(error, "cannot read %s", *path);
    return S_ISREG(status.st_mode)
               ? 0
               : gb_fail(error, GPUBUF_E_INVALID, "%s is no regular file", *path);
}

/* Reads an object's file and publishes the object, once all of it was read and its checksums are
   right. */
static int publish(struct load *load, const cJSON *entry, const char *name,
                   const struct gpubuf_create_options *options, struct gb_error *error)
{
    const cJSON *described = gb_cjson_member(entry, "layout");
    char *text = gb_cjson_text(described);
    struct gpubuf_object *object = NULL;
    struct gb_pool pool = {0};
    struct gb_layout layout;

    int r = described ? gb_snapshot_layout(text, &pool, &layout, error)
                      : gb_fail(error, GPUBUF_E_INVALID, "the manifest has no layout of it");
    if (r == 0) {
        int code = gb_snapshot_create(load->cli->client, name, &layout, options, &pool, &object);
        r = code < 0 ? (*error = gb_cli_last(load->cli, code)).code : 0;
    }
    if (r == 0)
        r = gb_snapshot_read(&load->file, object, &layout, gb_cjson_member(entry, "xxh3"), error);
    if (r == 0) {
        int code = gpubuf_seal(object, NULL);
        if (code == 0 && gb_cjson_bool_of(entry, "pinned"))
            code = gpubuf_pin(load->cli->client, name);
        r = code < 0 ? (*error = gb_cli_last(load->cli, code)).code : 0;
    }
    gpubuf_release(object);
    gb_pool_end(&pool);
    free(text);
    return r;
}

static void add_name(cJSON *names, const char *name)
{
    cJSON_AddItemToArray(names, cJSON_CreateString(name));
}

static void load_object(struct load *load, const cJSON *entry)
{
    const char *name = gb_cjson_string_of(entry, "name", "");
    struct gpubuf_create_options options;
    struct gb_error error;
    char *path = NULL;

    load->file.fd = -1;
    int r = read_options(load, entry, &options, &error);
    if (r == 0)
        r = open_data(load, entry, &path, &error);
    if (r == 0)
        r = publish(load, entry, name, &options, &error);
    if (load->file.fd >= 0)
        close(load->file.fd);
    free(path);
    if (r == 0) {
        load->bytes += (uint64_t)gb_cjson_int_of(entry, "bytes", 0);
        add_name(load->loaded, name);
    } else if (r == GPUBUF_E_EXISTS && !load->replace) {
        add_name(load->skipped, name);
    } else {
        add_name(load->failed, name);
        gb_cli_note(load->cli, &error, "cannot load %s", name);
    }
}

/* ---- the command ---- */

static void print_outcome(const struct load *load)
{
    int loaded = cJSON_GetArraySize(load->loaded);

    if (load->cli->json) {
        cJSON *answer = cJSON_CreateObject();
        cJSON_AddItemReferenceToObject(answer, "loaded", load->loaded);
        cJSON_AddItemReferenceToObject(answer, "skipped", load->skipped);
        cJSON_AddItemReferenceToObject(answer, "failed", load->failed);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
        return;
    }
    struct gb_writer rate;
    gb_writer_init(&rate, 0);
    gb_progress_rate(&load->progress, load->bytes, &rate);
    printf("loaded %d object%s, %s%.*s\n", loaded, loaded == 1 ? "" : "s",
           gb_size(load->bytes).text, (int)rate.length, rate.data ? rate.data : "");
    gb_writer_end(&rate);
    if (load->verbose)
        GB_CJSON_EACH(name, load->skipped)
            printf("skipped %s, which exists\n", name->valuestring);
}

static void load_all(struct load *load, const cJSON *objects)
{
    uint64_t total = 0;

    GB_CJSON_EACH(entry, objects)
        total += (uint64_t)gb_cjson_int_of(entry, "bytes", 0);
    gb_progress_begin(&load->progress, "load", total);
    GB_CJSON_EACH(entry, objects)
        if (load->cli->worst != GB_STATUS_NO_DAEMON)
            load_object(load, entry);
    gb_progress_end(&load->progress);
}

void gb_cmd_load(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct load load = {
        .cli = cli,
        .directory = args->value[0],
        .replace = args->option[REPLACE] != NULL,
        .verbose = args->option[VERBOSE] != NULL,
        .device = args->option[DEVICE],
        .wait_ms = args->number[WAIT],
    };
    cJSON *manifest = read_manifest(load.directory);

    gb_cli_connect(cli);
    load.file = (struct gb_snapshot_file){.fd = -1, .progress = &load.progress};
    load.loaded = cJSON_CreateArray();
    load.skipped = cJSON_CreateArray();
    load.failed = cJSON_CreateArray();
    load_all(&load, gb_cjson_member(manifest, "objects"));
    print_outcome(&load);
    int skipped = cJSON_GetArraySize(load.skipped);
    cJSON_Delete(load.loaded);
    cJSON_Delete(load.skipped);
    cJSON_Delete(load.failed);
    cJSON_Delete(manifest);
    if (cli->worst == GB_STATUS_OK && skipped > 0)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%d name%s that exist%s skipped; --replace takes them, -v tells them", skipped,
                    skipped == 1 ? "" : "s", skipped == 1 ? "s was" : " were");
}
