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

static int read_text(const char *path, char **text, struct gb_error *error)
{
    struct gb_input input;
    uint64_t got = 0;

    int r = gb_input_open(&input, path, error);
    if (r != 0)
        return r;
    if (input.bytes == GB_FILE_UNKNOWN || !(*text = malloc(input.bytes + 1)))
        r = gb_fail(error, GPUBUF_E_INVALID, "%s is no regular file, or too large for memory",
                    path);
    else
        r = gb_input_read(&input, *text, input.bytes, &got, error);
    if (r == 0)
        (*text)[got] = '\0';
    if (r == 0 && strlen(*text) != got)
        r = gb_fail(error, GPUBUF_E_INVALID, "%s: byte %zu is no text", path, strlen(*text));
    gb_input_close(&input);
    return r;
}

/* Checks that it is a manifest of a version that is read here, and that its checksum is right. 0,
   or GPUBUF_E_INVALID. */
static int check_manifest(const char *path, const cJSON *manifest, struct gb_error *error)
{
    const cJSON *objects = cJSON_GetObjectItemCaseSensitive(manifest, "objects");
    char sum[GB_SNAPSHOT_SUM];

    if (!manifest)
        return gb_fail(error, GPUBUF_E_INVALID, "%s is damaged: it is no JSON", path);
    if (strcmp(gb_cjson_string_of(manifest, "format", ""), "gpubufd snapshot") != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "%s is no manifest of a snapshot", path);
    if (gb_cjson_int_of(manifest, "version", 0) != 1)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s is of a later version of snapshots than this gpubufctl reads", path);
    char *text = cJSON_IsArray(objects) ? gb_cjson_text(objects) : NULL;
    gb_snapshot_sum(text ? text : "", sum);
    bool same = text && strcmp(gb_cjson_string_of(manifest, "xxh3", ""), sum) == 0;
    free(text);
    return same ? 0
                : gb_fail(error, GPUBUF_E_INVALID,
                          "%s is damaged: its objects have another checksum than it tells", path);
}

static int read_manifest(const char *directory, cJSON **manifest)
{
    char *path = NULL, *text = NULL;
    struct gb_error error;
    int r = asprintf(&path, "%s/manifest.json", directory) < 0 ? gb_fail_memory(&error) : 0;

    if (r == 0)
        r = read_text(path, &text, &error);
    if (r == 0) {
        *manifest = gb_cjson_parse(text);
        r = check_manifest(path, *manifest, &error);
    }
    free(text);
    free(path);
    return r == 0 ? GB_STATUS_OK : gb_cli_tell(&error);
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
    if (asprintf(path, "%s/%s", load->directory, file) < 0) {
        *path = NULL;
        return gb_fail_memory(error);
    }
    load->file.path = *path;
    load->file.fd = open(*path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (load->file.fd < 0 || fstat(load->file.fd, &status) != 0)
        return gb_fail_errno(error, "cannot read %s", *path);
    return S_ISREG(status.st_mode)
               ? 0
               : gb_fail(error, GPUBUF_E_INVALID, "%s is no regular file", *path);
}

/* Tells a failure of the library. */
static int library_failure(const struct load *load, int code, struct gb_error *error)
{
    const char *sentence = gpubuf_errmsg(load->cli->client);

    return gb_fail(error, code, "%s", sentence[0] ? sentence : gpubuf_strerror(code));
}

/* Reads an object's file and publishes the object, once all of it was read and its checksums are
   right. */
static int publish(struct load *load, const cJSON *entry, const char *name,
                   const struct gpubuf_create_options *options, struct gb_error *error)
{
    char *text = gb_cjson_text(cJSON_GetObjectItemCaseSensitive(entry, "layout"));
    struct gpubuf_object *object = NULL;
    struct gb_pool pool = {0};
    struct gb_layout layout;

    int r = text ? gb_snapshot_layout(text, &pool, &layout, error)
                 : gb_fail(error, GPUBUF_E_INVALID, "the manifest has no layout of it");
    if (r == 0) {
        int code = gb_snapshot_create(load->cli->client, name, &layout, options, &pool, &object);
        r = code < 0 ? library_failure(load, code, error) : 0;
    }
    if (r == 0)
        r = gb_snapshot_read(&load->file, object, &layout,
                             cJSON_GetObjectItemCaseSensitive(entry, "xxh3"), error);
    if (r == 0) {
        int code = gpubuf_seal(object, NULL);
        if (code == 0 && gb_cjson_bool_of(entry, "pinned"))
            code = gpubuf_pin(load->cli->client, name);
        r = code < 0 ? library_failure(load, code, error) : 0;
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

/* 0, or the status of what failed, which has been told. */
static int load_object(struct load *load, const cJSON *entry)
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
        return GB_STATUS_OK;
    }
    if (r == GPUBUF_E_EXISTS && !load->replace) {
        add_name(load->skipped, name);
        return GB_STATUS_OK;
    }
    add_name(load->failed, name);
    return gb_cli_error_of(load->cli, &error, "cannot load %s", name);
}

/* ---- the command ---- */

static void print_outcome(const struct load *load)
{
    int loaded = cJSON_GetArraySize(load->loaded);
    char size[32];

    if (load->cli->json) {
        cJSON *answer = cJSON_CreateObject();
        cJSON_AddItemReferenceToObject(answer, "loaded", load->loaded);
        cJSON_AddItemReferenceToObject(answer, "skipped", load->skipped);
        cJSON_AddItemReferenceToObject(answer, "failed", load->failed);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
        return;
    }
    gb_format_size(load->bytes, size, sizeof(size));
    struct gb_writer rate;
    gb_writer_init(&rate, 0);
    gb_progress_rate(&load->progress, load->bytes, &rate);
    printf("loaded %d object%s, %s%.*s\n", loaded, loaded == 1 ? "" : "s", size, (int)rate.length,
           rate.data ? rate.data : "");
    gb_writer_end(&rate);
    if (load->verbose)
        GB_CJSON_EACH(name, load->skipped)
            printf("skipped %s, which exists\n", name->valuestring);
}

static int load_all(struct load *load, const cJSON *objects)
{
    uint64_t total = 0;
    int worst = GB_STATUS_OK;

    GB_CJSON_EACH(entry, objects)
        total += (uint64_t)gb_cjson_int_of(entry, "bytes", 0);
    gb_progress_begin(&load->progress, "load", total);
    GB_CJSON_EACH(entry, objects) {
        int status = load_object(load, entry);
        if (worst == GB_STATUS_OK || status == GB_STATUS_NO_DAEMON)
            worst = status;
        if (status == GB_STATUS_NO_DAEMON)
            break;
    }
    gb_progress_end(&load->progress);
    return worst;
}

int gb_cmd_load(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct load load = {
        .cli = cli,
        .directory = args->value[0],
        .replace = args->option[REPLACE] != NULL,
        .verbose = args->option[VERBOSE] != NULL,
        .device = args->option[DEVICE],
        .wait_ms = args->number[WAIT],
    };
    cJSON *manifest = NULL;

    int status = read_manifest(load.directory, &manifest);
    if (status == GB_STATUS_OK)
        status = gb_cli_connect(cli);
    if (status == GB_STATUS_OK) {
        load.file = (struct gb_snapshot_file){.fd = -1, .progress = &load.progress};
        load.loaded = cJSON_CreateArray();
        load.skipped = cJSON_CreateArray();
        load.failed = cJSON_CreateArray();
        status = load_all(&load, cJSON_GetObjectItemCaseSensitive(manifest, "objects"));
        print_outcome(&load);
        int skipped = cJSON_GetArraySize(load.skipped);
        if (status == GB_STATUS_OK && skipped > 0)
            status =
                gb_cli_fail(GB_STATUS_FAILED,
                            "%d name%s that exist%s skipped; --replace takes them, -v tells "
                            "them",
                            skipped, skipped == 1 ? "" : "s", skipped == 1 ? "s was" : " were");
    }
    cJSON_Delete(load.loaded);
    cJSON_Delete(load.skipped);
    cJSON_Delete(load.failed);
    cJSON_Delete(manifest);
    return status;
}
