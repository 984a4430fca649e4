/* gpubufctl save PREFIX DIR: objects as files, which `load` publishes again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
    char *target;   /* the directory */
    char *path;     /* of the file that is written */
    cJSON *entries; /* of the manifest */
    uint64_t total; /* bytes of all objects */
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

/* Checks that the snapshot may be put at the target. */
static void check_target(const struct save *save, bool replaces)
{
    struct stat status;
    bool empty;

    if (lstat(save->target, &status) != 0)
        return;
    if (!S_ISDIR(status.st_mode) || !walk(save->target, false, &empty))
        gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: it is there and is no snapshot",
                    save->target);
    if (!empty && !replaces)
        gb_cli_fail(GB_STATUS_FAILED,
                    "cannot write %s: there is a snapshot in it; --replace takes its place",
                    save->target);
}

static _Noreturn void cannot_write(const char *path)
{
    gb_cli_fail(GB_STATUS_FAILED, "cannot write %s: %m", path);
}

static char *temporary; /* the directory that takes the target's place */

static void remove_temporary(void)
{
    bool empty;

    (void)walk(temporary, true, &empty);
}

static void make_directory(struct save *save, const char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    save->target = gb_copy(path, length);
    const char *slash = strrchr(save->target, '/');
    int above = slash ? (int)(slash - save->target) + 1 : 0;
    temporary = gb_text("%.*s.%.200s.XXXXXX", above, save->target, save->target + above);
    if (!mkdtemp(temporary))
        cannot_write(save->target);
    gb_cli_undo(remove_temporary);
}

/* Creates a file in the temporary directory. */
static void open_file(struct save *save, const char *name)
{
    free(save->path);
    save->file.path = save->path = gb_text("%s/%s", temporary, name);
    save->file.fd = open(save->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (save->file.fd < 0)
        cannot_write(save->path);
}

/* Syncs the file to the disk and closes it. */
static void close_file(const struct save *save)
{
    if (fsync(save->file.fd) != 0 || close(save->file.fd) != 0)
        cannot_write(save->path);
}

/* Puts the directory in its place. */
static void rename_directory(const struct save *save)
{
    bool empty;
    int fd = open(temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        cannot_write(save->target);
    close(fd);
    if (rename(temporary, save->target) != 0) {
        /* There is a snapshot already: it is removed once the new one is in its place. */
        if ((errno != ENOTEMPTY && errno != EEXIST) ||
            renameat2(AT_FDCWD, temporary, AT_FDCWD, save->target, RENAME_EXCHANGE) != 0)
            cannot_write(save->target);
        gb_cli_undo(NULL);
        if (!walk(temporary, true, &empty))
            gb_cli_fail(GB_STATUS_FAILED, "the snapshot that was in %s is left in %s", save->target,
                        temporary);
    }
    gb_cli_undo(NULL);
    free(temporary);
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
        const cJSON *member = gb_cjson_member(object, members[i]);
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
static void write_object(struct save *save, const cJSON *object, struct gpubuf_object *opened)
{
    char *text = gb_cjson_text(gb_cjson_member(object, "layout"));
    struct gb_path where = {.key = "layout"};
    uint64_t before = save->file.done;
    cJSON *sums = cJSON_CreateArray();
    struct gb_pool pool = {0};
    struct gb_layout layout;
    struct gb_writer writer;
    struct gb_error error;
    char file[32];

    (void)snprintf(file, sizeof(file), "%06d.data", cJSON_GetArraySize(save->entries) + 1);
    open_file(save, file);
    if (gb_layout_parse(text, strlen(text), &where, &pool, &layout, &error) != 0 ||
        gb_snapshot_write(&save->file, opened, &layout, sums, &error) != 0)
        gb_cli_end_by(&error);
    gb_writer_init(&writer, 0);
    gb_layout_write(&writer, &layout, GB_LAYOUT_CREATE);
    cJSON_AddItemToArray(save->entries, make_entry(object, file, save->file.done - before,
                                                   gb_writer_text(&writer), sums));
    close_file(save);
    gb_writer_end(&writer);
    gb_pool_end(&pool);
    free(text);
}

/* Describes, opens and writes the name's current version. False: it was replaced in between. */
static bool try_object(struct save *save, const char *name)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    struct gpubuf_object *opened = NULL;
    cJSON *answer;

    int code = gb_cli_request(save->cli->client, "stat", gb_cjson("{'name':%s}", name), &answer);
    const cJSON *object = gb_cjson_member(answer, "object");
    options.version = (uint64_t)gb_cjson_int_of(object, "version", 0);
    if (code == 0)
        code = gpubuf_open(save->cli->client, name, &options, &opened);
    if (code == GPUBUF_E_NOT_FOUND)
        cJSON_AddItemToArray(save->gone, cJSON_CreateString(name));
    else if (code != GPUBUF_E_STALE)
        gb_cli_check(save->cli, code, "cannot save %s", name);
    if (code == 0)
        write_object(save, object, opened);
    gpubuf_release(opened);
    cJSON_Delete(answer);
    return code != GPUBUF_E_STALE;
}

static void save_objects(struct save *save, const cJSON *objects)
{
    GB_CJSON_EACH(object, objects) {
        const char *name = gb_cjson_string_of(object, "name", "");
        int tries = 0;
        gb_cli_about("cannot save %s", name);
        while (!try_object(save, name))
            if (++tries == 100)
                gb_cli_fail(GB_STATUS_FAILED, "cannot save %s: it is replaced all the time", name);
    }
}

static void write_manifest(struct save *save, const char *prefix)
{
    char *entries = gb_cjson_text(save->entries);
    char sum[GB_SNAPSHOT_SUM];

    gb_snapshot_sum(entries, sum);
    cJSON *manifest = gb_cjson("{'format':'gpubufd snapshot','version':1,'prefix':%s,"
                               "'saved_ms':%" PRId64 ",'xxh3':%s}",
                               prefix, (int64_t)time(NULL) * 1000, sum);
    cJSON_AddItemReferenceToObject(manifest, "objects", save->entries);
    char *text = gb_cjson_text(manifest);
    open_file(save, "manifest.json");
    if (dprintf(save->file.fd, "%s\n", text) < 0)
        cannot_write(save->path);
    close_file(save);
    cJSON_Delete(manifest);
    free(entries);
    free(text);
}

/* ---- the command ---- */

static void print_outcome(const struct save *save)
{
    int count = cJSON_GetArraySize(save->entries), gone = cJSON_GetArraySize(save->gone);

    if (save->cli->json) {
        cJSON *answer =
            gb_cjson("{'directory':%s,'bytes':%" PRIu64 "}", save->target, save->file.done);
        cJSON *saved = cJSON_AddArrayToObject(answer, "saved");
        GB_CJSON_EACH(entry, save->entries)
            cJSON_AddItemToArray(saved, cJSON_CreateString(gb_cjson_string_of(entry, "name", "")));
        cJSON_AddItemReferenceToObject(answer, "gone", save->gone);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
        return;
    }
    printf("saved %d object%s, %s, in %s\n", count, count == 1 ? "" : "s",
           gb_size(save->file.done).text, save->target);
    if (gone > 0)
        printf("%d removed before their turn\n", gone);
}

void gb_cmd_save(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *prefix = args->value[0];
    bool pattern = gb_names_is_pattern(prefix);
    struct save save = {.cli = cli};

    save.file =
        (struct gb_snapshot_file){.fd = -1, .progress = &save.progress, .stop = &stopped_by};
    cJSON *objects = gb_found_names(cli, prefix, pattern, false);
    if (!objects->child && pattern)
        gb_names_none(prefix);
    if (!objects->child)
        gb_cli_fail(GB_STATUS_FAILED, "no object's name starts with \"%s\"", prefix);
    save.entries = cJSON_CreateArray();
    save.gone = cJSON_CreateArray();
    watch_signals();
    make_directory(&save, args->value[1]);
    check_target(&save, args->option[REPLACE] != NULL);
    GB_CJSON_EACH(object, objects)
        save.total += (uint64_t)gb_cjson_int_of(object, "bytes", 0);
    gb_progress_begin(&save.progress, "save", save.total);
    save_objects(&save, objects);
    gb_progress_end(&save.progress);
    write_manifest(&save, prefix);
    rename_directory(&save);
    print_outcome(&save);
    cJSON_Delete(objects);
    cJSON_Delete(save.entries);
    cJSON_Delete(save.gone);
    free(save.target);
    free(save.path);
}
