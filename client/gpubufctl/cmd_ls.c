/* gpubufctl ls [PREFIX|PATTERN] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster.h"
#include "commands.h"
#include "format.h"
#include "grid.h"
#include "json_print.h"
#include "names.h"
#include "term.h"
#include "user_name.h"

enum { LONG, NAMES, SORT, TOTAL, VERSIONS, CLUSTER, PEER_SOCKET };

const struct gb_cli_option gb_ls_options[] = {
    {"long", 'l', NULL, "also mode, user, device, tier, version and more", NULL, GB_COMPLETE_NONE},
    {"names", '1', NULL, "only the names, one a line", NULL, GB_COMPLETE_NONE},
    {"sort", 's', "ORDER", "by name, size, idle or created, the most first (name)",
     "name size idle created", GB_COMPLETE_NONE},
    {"total", 't', NULL, "also how many there are, and their bytes together", NULL,
     GB_COMPLETE_NONE},
    {"versions", 'v', NULL, "also older versions, and those that are there for their readers", NULL,
     GB_COMPLETE_NONE},
    {"cluster", 'c', NULL, "names that any machine has published, as this one's peer knows them",
     NULL, GB_COMPLETE_NONE},
    GB_CLUSTER_OPTION,
    {0},
};

static void add_user(struct gb_grid *grid, int64_t uid)
{
    char name[64];

    gb_user_name(uid, name, sizeof(name));
    gb_grid_text(grid, name, GB_STYLE_NONE);
}

static void add_size(struct gb_grid *grid, int64_t bytes)
{
    char text[32];

    gb_format_size(bytes < 0 ? 0 : (uint64_t)bytes, text, sizeof(text));
    gb_grid_text(grid, text, GB_STYLE_NONE);
}

static void add_age(struct gb_grid *grid, int64_t created_ms, int64_t now_ms)
{
    char text[32];

    gb_format_age(now_ms - created_ms, text, sizeof(text));
    gb_grid_text(grid, text, GB_STYLE_NONE);
}

/* "live", "pinned", "cluster", "drop", "ttl 5 min": what sets an object apart. */
static void add_notes(struct gb_grid *grid, const cJSON *object)
{
    const char *evict = gb_cjson_string_of(object, "evict", "spill");
    int64_t ttl = gb_cjson_int_of(object, "ttl_ms", 0);
    struct gb_writer text;
    char span[32];

    gb_writer_init(&text, 0);
    const cJSON *stream = cJSON_GetObjectItemCaseSensitive(object, "stream");
    if (stream)
        gb_write_format(&text, "stream: frame %" PRId64 ", %" PRId64 " reader%s%s ",
                        gb_cjson_int_of(stream, "frames", 0), gb_cjson_int_of(stream, "readers", 0),
                        gb_cjson_int_of(stream, "readers", 0) == 1 ? "" : "s",
                        gb_cjson_int_of(stream, "writer", 0) ? "" : ", no writer");
    else if (gb_cjson_bool_of(object, "live"))
        GB_WRITE_LITERAL(&text, "live ");
    if (gb_cjson_bool_of(object, "older"))
        GB_WRITE_LITERAL(&text, "older ");
    if (gb_cjson_bool_of(object, "gone"))
        GB_WRITE_LITERAL(&text, "gone ");
    if (*gb_cjson_string_of(object, "label", ""))
        gb_write_format(&text, "%s ", gb_cjson_string_of(object, "label", ""));
    if (*gb_cjson_string_of(object, "scope", ""))
        gb_write_format(&text, "%s ", gb_cjson_string_of(object, "scope", ""));
    if (gb_cjson_bool_of(object, "pinned"))
        GB_WRITE_LITERAL(&text, "pinned ");
    if (strcmp(evict, "spill") != 0)
        gb_write_format(&text, "%s ", evict);
    if (ttl > 0) {
        gb_format_age(ttl, span, sizeof(span));
        gb_write_format(&text, "ttl %s ", span);
    }
    gb_grid_add(grid, text.length ? text.data : "", text.length ? text.length - 1 : 0,
                GB_STYLE_YELLOW);
    gb_writer_end(&text);
}

static void add_leases(struct gb_grid *grid, const cJSON *object)
{
    int64_t leases = gb_cjson_int_of(object, "leases", 0);

    gb_grid_format(grid, leases ? GB_STYLE_GREEN : GB_STYLE_DIM, "%" PRId64, leases);
}

static int64_t wall_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* `versions`: names come more than once, so each has its number. */
static void fill_short(struct gb_grid *grid, const cJSON *objects, bool versions)
{
    static const char *const titles[] = {"name", "version", "size", "leases", "age", "notes"};
    static const unsigned leaves[] = {0, 0, 0, 2, 3, 1};
    int64_t now = wall_clock_ms();
    size_t column = 0;

    gb_grid_init(grid, versions ? 6 : 5);
    if (grid->failed)
        return;
    for (size_t i = 0; i < 6; i++) {
        if (i == 1 && !versions)
            continue;
        grid->columns[column].flexible = i == 0;
        grid->columns[column].right = i > 0 && i < 5;
        grid->columns[column++].leaves = leaves[i];
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    }
    GB_CJSON_EACH(object, objects) {
        gb_grid_text(grid, gb_cjson_string_of(object, "name", ""), GB_STYLE_BOLD);
        if (versions)
            gb_grid_format(grid, GB_STYLE_NONE, "%" PRId64, gb_cjson_int_of(object, "version", 0));
        add_size(grid, gb_cjson_int_of(object, "bytes", 0));
        add_leases(grid, object);
        add_age(grid, gb_cjson_int_of(object, "created_ms", 0), now);
        add_notes(grid, object);
    }
}

static void fill_long(struct gb_grid *grid, const cJSON *objects)
{
    static const char *const titles[] = {"mode", "user",    "device", "tier",  "share", "size",
                                         "age",  "version", "leases", "short", "name",  "notes"};
    static const unsigned leaves[] = {6, 4, 5, 3, 10, 0, 2, 9, 8, 7, 0, 1}; /* the name stays */
    int64_t now = wall_clock_ms();

    gb_grid_init(grid, 12);
    if (grid->failed)
        return;
    for (size_t i = 5; i < 9; i++)
        grid->columns[i].right = true;
    grid->columns[2].flexible = grid->columns[10].flexible = true;
    for (size_t i = 0; i < 12; i++)
        grid->columns[i].leaves = leaves[i];
    for (size_t i = 0; i < 12; i++)
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    GB_CJSON_EACH(object, objects) {
        gb_grid_text(grid, gb_cjson_string_of(object, "mode", ""), GB_STYLE_NONE);
        add_user(grid, gb_cjson_int_of(object, "uid", -1));
        gb_grid_text(grid, gb_cjson_string_of(object, "device", ""), GB_STYLE_NONE);
        gb_grid_text(grid, gb_cjson_string_of(object, "tier", ""), GB_STYLE_NONE);
        gb_grid_text(grid, gb_cjson_string_of(object, "share", ""), GB_STYLE_NONE);
        add_size(grid, gb_cjson_int_of(object, "bytes", 0));
        add_age(grid, gb_cjson_int_of(object, "created_ms", 0), now);
        gb_grid_format(grid, GB_STYLE_NONE, "%" PRId64, gb_cjson_int_of(object, "version", 0));
        add_leases(grid, object);
        gb_grid_text(grid, gb_cjson_string_of(object, "when_short", ""), GB_STYLE_NONE);
        gb_grid_text(grid, gb_cjson_string_of(object, "name", ""), GB_STYLE_BOLD);
        add_notes(grid, object);
    }
}

static int print_objects(const struct gb_cli *cli, const cJSON *objects, const char *const *option)
{
    struct gb_grid grid;

    if (!objects->child) {
        if (cli->color)
            printf("%sno objects%s\n", gb_style_on(true, GB_STYLE_DIM),
                   gb_style_off(true, GB_STYLE_DIM));
        return GB_STATUS_OK;
    }
    if (option[LONG])
        fill_long(&grid, objects);
    else
        fill_short(&grid, objects, option[VERSIONS]);
    bool done = gb_grid_print(&grid, gb_term_width(), 0, cli->color, false, NULL);
    gb_grid_end(&grid);
    return done ? GB_STATUS_OK : gb_cli_fail(GB_STATUS_FAILED, "out of memory");
}

static void print_names(const cJSON *objects)
{
    GB_CJSON_EACH(object, objects)
        puts(gb_cjson_string_of(object, "name", ""));
}

/* ---- order and total ---- */

struct row {
    cJSON *object;
    int64_t key;
};

/* The largest first; equal ones stay by name, as the daemon tells them. */
static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    return strcmp(gb_cjson_string_of(x->object, "name", ""),
                  gb_cjson_string_of(y->object, "name", ""));
}

/* The member by which objects are ordered; "" for names; NULL: there is no such order. */
static const char *sort_key(const char *order)
{
    static const char *const keys[][2] = {
        {"name", ""}, {"size", "bytes"}, {"idle", "idle_ms"}, {"created", "created_ms"}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strcmp(keys[i][0], order) == 0)
            return keys[i][1];
    return NULL;
}

static bool sort_objects(cJSON *objects, const char *key)
{
    size_t count = (size_t)cJSON_GetArraySize(objects);
    struct row *rows = malloc((count + 1) * sizeof(*rows));

    if (!rows)
        return false;
    for (size_t i = 0; i < count; i++) {
        rows[i].object = cJSON_DetachItemViaPointer(objects, objects->child);
        rows[i].key = gb_cjson_int_of(rows[i].object, key, 0);
    }
    qsort(rows, count, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(objects, rows[i].object);
    free(rows);
    return true;
}

static int64_t total_bytes(const cJSON *objects)
{
    int64_t total = 0;

    GB_CJSON_EACH(object, objects)
        total += gb_cjson_int_of(object, "bytes", 0);
    return total;
}

static void print_total(const cJSON *objects)
{
    char count[64], size[32];
    int objects_count = cJSON_GetArraySize(objects);

    gb_format_count((uint64_t)objects_count, count, sizeof(count));
    gb_format_size((uint64_t)total_bytes(objects), size, sizeof(size));
    printf("%s object%s, %s\n", count, objects_count == 1 ? "" : "s", size);
}

static void print_json(cJSON *objects, bool total)
{
    cJSON *document = cJSON_CreateObject();

    if (total)
        cJSON_AddNumberToObject(document, "total_bytes", (double)total_bytes(objects));
    cJSON_AddItemReferenceToObject(document, "objects", objects);
    gb_cjson_print(document, true);
    cJSON_Delete(document);
}

/* Finds the objects that match a pattern; if none does, those whose names start with the text
   itself. */
static int find(struct gb_cli *cli, const char *text, bool versions, cJSON **objects)
{
    bool pattern = text && gb_names_is_pattern(text);

    int status = gb_found_versions(cli, text, pattern, versions, objects);
    if (status != GB_STATUS_OK || !pattern || (*objects)->child)
        return status;
    cJSON_Delete(*objects);
    status = gb_found_versions(cli, text, false, versions, objects);
    if (status != GB_STATUS_OK || (*objects)->child)
        return status;
    cJSON_Delete(*objects);
    return gb_names_none(text);
}

int gb_cmd_ls(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *key = args->option[SORT] ? sort_key(args->option[SORT]) : "";
    cJSON *objects = NULL;

    if (!key)
        return gb_cli_usage(cli, "--sort is name, size, idle or created, not \"%s\"",
                            args->option[SORT]);
    if (args->option[CLUSTER]) {
        if (args->option[LONG] || args->option[SORT] || args->option[TOTAL] ||
            args->option[VERSIONS] || (args->count && gb_names_is_pattern(args->value[0])))
            return gb_cli_usage(cli, "--cluster goes with PREFIX and --names alone");
        return gb_cluster_ls(cli, args->option[PEER_SOCKET], args->count ? args->value[0] : NULL,
                             args->option[NAMES] != NULL);
    }
    int status =
        find(cli, args->count ? args->value[0] : NULL, args->option[VERSIONS] != NULL, &objects);
    if (status != GB_STATUS_OK)
        return status;
    if (key[0] && !sort_objects(objects, key))
        status = gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    else if (cli->json)
        print_json(objects, args->option[TOTAL] != NULL);
    else if (args->option[NAMES])
        print_names(objects);
    else
        status = print_objects(cli, objects, args->option);
    if (status == GB_STATUS_OK && args->option[TOTAL] && !cli->json)
        print_total(objects);
    cJSON_Delete(objects);
    return status;
}
