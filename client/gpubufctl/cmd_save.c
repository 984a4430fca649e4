/* gpubufctl save PREFIX DIR: objects as files, which `load` publishes again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "format.h"
#include "json_print.h"
#include "names.h"
#include "snapshot.h"

enum { REPLACE };

const struct gb_cli_option gb_save_options[] = {
    {"replace", 'r', NULL, "take the place of a snapshot that is in DIR", NULL},
    {0},
};

struct save {
    struct gb_cli *cli;
    char *target, *temporary; /* the directory, and the one that takes its place */
    cJSON *entries;           /* of the manifest */
    uint64_t total;           /* bytes of all objects */
    struct gb_progress progress;
    struct gb_snapshot_file file;
    cJSON *gone; /* names that were removed meanwhile */
};

static volatile int stopped_by;

static void on_signal(int number)
{
    stopped_by = number;
}

static void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        struct sigaction old, action = {.sa_handler = on_signal};
        sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

/* ---- directories ---- */

static bool is_ours(const char *name)
{
    size_t digits = strspn(name, "0123456789");

    return strcmp(name, "manifest.json") == 0 ||
           (digits > 0 && strcmp(name + digits, ".data") == 0);
}

/* Looks at all files of a directory; with `removes` it removes them and the directory. False: there
   is no such directory, or it has files that no snapshot has. */
static bool walk(const char *path, bool removes, bool *empty)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    bool fine = directory != NULL;

    *empty = true;
    while (fine && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        *empty = false;
        fine = is_ours(entry->d_name) &&
               (!removes || unlinkat(dirfd(directory), entry->d_name, 0) == 0);
    }
    if (directory)
        (void)closedir(directory);
    return fine && (!removes || rmdir(path) == 0);
}

/* Checks that the snapshot may be put at the target. 0, or a status. */
static int check_target(const struct save *save, bool replaces)
{
    struct stat status;
    bool empty;

    if (lstat(save->target, &status) != 0)
        return GB_STATUS_OK;
    bool ours = S_ISDIR(status.st_mode) && walk(save->target, false, &empty);
    if (!ours)
        return gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: it is there and is no snapshot",
                           save->target);
    if (!empty && !replaces)
        return gb_cli_fail(GB_STATUS_FAILED,
                           "cannot write %s: there is a snapshot in it; --replace takes its place",
                           save->target);
    return GB_STATUS_OK;
}

static int make_directory(struct save *save, const char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    save->target = strndup(path, length);
    const char *slash = save->target ? strrchr(save->target, '/') : NULL;
    int above = slash ? (int)(slash - save->target) + 1 : 0;
    if (!save->target || asprintf(&save->temporary, "%.*s.%.200s.XXXXXX", above, save->target,
                                  save->target + above) < 0) {
        save->temporary = NULL;
        return gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    }
    if (mkdtemp(save->temporary))
        return GB_STATUS_OK;
    int status =
        gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %s", save->target, strerror(errno));
    free(save->temporary);
    save->temporary = NULL;
    return status;
}

/* Creates a file in the temporary directory. */
static int open_file(struct save *save, const char *name, char **path)
{
    if (asprintf(path, "%s/%s", save->temporary, name) < 0) {
        *path = NULL;
        return gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    }
    save->file.path = *path;
    save->file.fd = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (save->file.fd >= 0)
        return GB_STATUS_OK;
    return gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %s", *path, strerror(errno));
}

/* Syncs the file to the disk and closes it. */
static int close_file(struct save *save, int status)
{
    int fd = save->file.fd;

    save->file.fd = -1;
    if (fd < 0)
        return status;
    bool failed = status == GB_STATUS_OK && fsync(fd) != 0;
    if (close(fd) != 0 && status == GB_STATUS_OK)
        failed = true;
    return failed ? gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %s", save->file.path,
                                strerror(errno))
                  : status;
}

/* Puts the directory in its place. */
static int rename_directory(struct save *save)
{
    bool empty;
    int fd = open(save->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    bool failed = fd < 0 || fsync(fd) != 0;
    if (fd >= 0)
        close(fd);
    if (!failed && rename(save->temporary, save->target) == 0) {
        free(save->temporary);
        save->temporary = NULL;
        return GB_STATUS_OK;
    }
    /* There is a snapshot already: it is removed once the new one is in its place. */
    if (failed || (errno != ENOTEMPTY && errno != EEXIST) ||
        renameat2(AT_FDCWD, save->temporary, AT_FDCWD, save->target, RENAME_EXCHANGE) != 0)
        return gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %s", save->target, strerror(errno));
    if (!walk(save->temporary, true, &empty))
        return gb_cli_fail(GB_STATUS_FAILED, "the snapshot that was in %s is left in %s",
                           save->target, save->temporary);
    free(save->temporary);
    save->temporary = NULL;
    return GB_STATUS_OK;
}

/* ---- objects ---- */

/* The object's entry in the manifest: all that `load` needs to publish it as it is. */
static cJSON *make_entry(const cJSON *object, const char *file, uint64_t bytes, const char *layout,
                         cJSON *sums)
{
    static const char *const members[] = {"name",   "device", "share",  "mode",
                                          "ttl_ms", "evict",  "pinned", "created_ms",
                                          "final",  "label",  "keep",   "scope"};
    cJSON *entry = cJSON_CreateObject();

    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, members[i]);
        if (member)
            cJSON_AddItemToObject(entry, members[i], cJSON_Duplicate(member, true));
    }
    cJSON_AddStringToObject(entry, "file", file);
    cJSON_AddNumberToObject(entry, "bytes", (double)bytes);
    cJSON_AddItemToObject(entry, "layout", gb_cjson_parse(layout));
    cJSON_AddItemToObject(entry, "xxh3", sums);
    return entry;
}

/* Writes the opened object's content to a file and adds its entry to the manifest. */
static int write_object(struct save *save, const cJSON *object, struct gpubuf_object *opened)
{
    char *text = gb_cjson_text(cJSON_GetObjectItemCaseSensitive(object, "layout"));
    const char *name = gb_cjson_string_of(object, "name", "");
    struct gb_path where = {.key = "layout"};
    uint64_t before = save->file.done;
    cJSON *sums = cJSON_CreateArray();
    struct gb_pool pool = {0};
    struct gb_layout layout;
    struct gb_writer writer;
    struct gb_error error;
    char *path = NULL, file[32];

    (void)snprintf(file, sizeof(file), "%06d.data", cJSON_GetArraySize(save->entries) + 1);
    int status = open_file(save, file, &path);
    int r = text ? 0 : gb_fail_memory(&error);
    if (status == GB_STATUS_OK && r == 0)
        r = gb_layout_parse(text, strlen(text), &where, &pool, &layout, &error);
    if (status == GB_STATUS_OK && r == 0)
        r = gb_snapshot_write(&save->file, opened, &layout, sums, &error);
    if (r != 0)
        status = error.code == GPUBUF_E_SYSTEM
                     ? gb_cli_tell(&error)
                     : gb_cli_fail(GB_STATUS_FAILED, "cannot save %s: %s", name, error.message);
    gb_writer_init(&writer, 0);
    if (status == GB_STATUS_OK) {
        gb_layout_write(&writer, &layout, GB_LAYOUT_CREATE);
        gb_write_char(&writer, '\0');
        cJSON_AddItemToArray(save->entries, make_entry(object, file, save->file.done - before,
                                                       writer.failed ? "" : writer.data, sums));
    } else {
        cJSON_Delete(sums);
    }
    status = close_file(save, status);
    gb_writer_end(&writer);
    gb_pool_end(&pool);
    free(text);
    free(path);
    return status;
}

/* Describes, opens and writes the name's current version. A status; -1: it was replaced in
   between. */
static int try_object(struct save *save, const char *name)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    struct gpubuf_object *opened = NULL;
    cJSON *params = cJSON_CreateObject(), *answer;
    int status = GB_STATUS_OK;

    cJSON_AddStringToObject(params, "name", name);
    int code = gb_cli_request(save->cli->client, "stat", params, &answer);
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(answer, "object");
    options.version = (uint64_t)gb_cjson_int_of(object, "version", 0);
    if (code == 0)
        code = gpubuf_open(save->cli->client, name, &options, &opened);
    if (code == GPUBUF_E_NOT_FOUND)
        cJSON_AddItemToArray(save->gone, cJSON_CreateString(name));
    else if (code < 0 && code != GPUBUF_E_STALE)
        status = gb_cli_error(save->cli, code, "cannot save %s", name);
    else if (code == 0)
        status = write_object(save, object, opened);
    gpubuf_release(opened);
    cJSON_Delete(answer);
    return code == GPUBUF_E_STALE ? -1 : status;
}

static int save_objects(struct save *save, const cJSON *objects)
{
    GB_CJSON_EACH(object, objects) {
        const char *name = gb_cjson_string_of(object, "name", "");
        int status = -1;
        for (int tries = 0; status < 0 && tries < 100; tries++)
            status = try_object(save, name);
        if (status < 0)
            status =
                gb_cli_fail(GB_STATUS_FAILED, "cannot save %s: it is replaced all the time", name);
        if (status != GB_STATUS_OK)
            return status;
    }
    return GB_STATUS_OK;
}

static int write_manifest(struct save *save, const char *prefix)
{
    cJSON *manifest = cJSON_CreateObject();
    char *entries = gb_cjson_text(save->entries), *path = NULL;
    char sum[GB_SNAPSHOT_SUM];

    gb_snapshot_sum(entries ? entries : "", sum);
    cJSON_AddStringToObject(manifest, "format", "gpubufd snapshot");
    cJSON_AddNumberToObject(manifest, "version", 1);
    cJSON_AddStringToObject(manifest, "prefix", prefix);
    cJSON_AddNumberToObject(manifest, "saved_ms", (double)time(NULL) * 1000);
    cJSON_AddItemReferenceToObject(manifest, "objects", save->entries);
    cJSON_AddStringToObject(manifest, "xxh3", sum);
    char *text = gb_cjson_text(manifest);
    int status = text && entries ? open_file(save, "manifest.json", &path)
                                 : gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    if (status == GB_STATUS_OK && dprintf(save->file.fd, "%s\n", text) < 0)
        status = gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %s", path, strerror(errno));
    status = close_file(save, status);
    cJSON_Delete(manifest);
    free(entries);
    free(text);
    free(path);
    return status;
}

/* ---- the command ---- */

static void print_outcome(const struct save *save)
{
    int count = cJSON_GetArraySize(save->entries), gone = cJSON_GetArraySize(save->gone);
    char size[32];

    if (save->cli->json) {
        cJSON *answer = cJSON_CreateObject();
        cJSON *saved = cJSON_AddArrayToObject(answer, "saved");
        GB_CJSON_EACH(entry, save->entries)
            cJSON_AddItemToArray(saved, cJSON_CreateString(gb_cjson_string_of(entry, "name", "")));
        cJSON_AddItemReferenceToObject(answer, "gone", save->gone);
        cJSON_AddStringToObject(answer, "directory", save->target);
        cJSON_AddNumberToObject(answer, "bytes", (double)save->file.done);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
        return;
    }
    gb_format_size(save->file.done, size, sizeof(size));
    printf("saved %d object%s, %s, in %s\n", count, count == 1 ? "" : "s", size, save->target);
    if (gone > 0)
        printf("%d removed before their turn\n", gone);
}

static int save_all(struct save *save, const char *prefix, const cJSON *objects)
{
    GB_CJSON_EACH(object, objects)
        save->total += (uint64_t)gb_cjson_int_of(object, "bytes", 0);
    watch_signals();
    gb_progress_begin(&save->progress, "save", save->total);
    int status = save_objects(save, objects);
    gb_progress_end(&save->progress);
    if (status == GB_STATUS_OK)
        status = write_manifest(save, prefix);
    return status == GB_STATUS_OK ? rename_directory(save) : status;
}

int gb_cmd_save(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *prefix = args->value[0];
    bool pattern = gb_names_is_pattern(prefix), empty;
    struct save save = {.cli = cli};
    cJSON *objects = NULL;

    save.file =
        (struct gb_snapshot_file){.fd = -1, .progress = &save.progress, .stop = &stopped_by};
    int status = gb_found_names(cli, prefix, pattern, &objects);
    if (status != GB_STATUS_OK)
        return status;
    if (!objects->child)
        status = pattern
                     ? gb_names_none(prefix)
                     : gb_cli_fail(GB_STATUS_FAILED, "no object's name starts with \"%s\"", prefix);
    save.entries = cJSON_CreateArray();
    save.gone = cJSON_CreateArray();
    if (status == GB_STATUS_OK)
        status = make_directory(&save, args->value[1]);
    if (status == GB_STATUS_OK)
        status = check_target(&save, args->option[REPLACE] != NULL);
    if (status == GB_STATUS_OK)
        status = save_all(&save, prefix, objects);
    if (status == GB_STATUS_OK)
        print_outcome(&save);
    else if (save.temporary)
        (void)walk(save.temporary, true, &empty);
    cJSON_Delete(objects);
    cJSON_Delete(save.entries);
    cJSON_Delete(save.gone);
    free(save.target);
    free(save.temporary);
    return status;
}
