/* gpubufctl ls [PREFIX] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "format.h"
#include "grid.h"
#include "json_print.h"
#include "term.h"
#include "user_name.h"

enum { LONG, NAMES };

const struct gb_cli_option gb_ls_options[] = {
    {"long", 'l', NULL, "also mode, user, device, tier, version and more", NULL, GB_COMPLETE_NONE},
    {"names", '1', NULL, "only the names, one a line", NULL, GB_COMPLETE_NONE},
    {0},
};

/* Gathers the objects of all pages. 0 and *objects, an array to be deleted; or a status. */
static int gather(struct gb_cli *cli, const char *prefix, cJSON **objects)
{
    cJSON *all = cJSON_CreateArray();
    cJSON *params = cJSON_CreateObject();
    int status = GB_STATUS_OK;
    bool more = true;

    if (prefix)
        cJSON_AddStringToObject(params, "prefix", prefix);
    while (status == GB_STATUS_OK && more) {
        char *result = NULL;
        char *text = gb_cjson_text(params);
        status = gb_cli_call(cli, "list", text, &result);
        free(text);
        if (status != GB_STATUS_OK)
            break;
        cJSON *page = gb_cjson_parse(result);
        gpubuf_free(result);
        cJSON *found = cJSON_DetachItemFromObjectCaseSensitive(page, "objects");
        const char *cursor = gb_cjson_string_of(page, "cursor", NULL);
        if (!page || !found)
            status = gb_cli_fail(GB_STATUS_FAILED, "the daemon's answer to list makes no sense");
        while (found && found->child)
            cJSON_AddItemToArray(all, cJSON_DetachItemViaPointer(found, found->child));
        cJSON_DeleteItemFromObjectCaseSensitive(params, "cursor");
        more = cursor != NULL;
        if (more)
            cJSON_AddStringToObject(params, "cursor", cursor);
        cJSON_Delete(found);
        cJSON_Delete(page);
    }
    cJSON_Delete(params);
    if (status != GB_STATUS_OK) {
        cJSON_Delete(all);
        return status;
    }
    *objects = all;
    return GB_STATUS_OK;
}

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

/* "pinned", "drop", "ttl 5 min": what sets an object apart. */
static void add_notes(struct gb_grid *grid, const cJSON *object)
{
    const char *evict = gb_cjson_string_of(object, "evict", "spill");
    int64_t ttl = gb_cjson_int_of(object, "ttl_ms", 0);
    struct gb_writer text;
    char span[32];

    gb_writer_init(&text, 0);
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

static void fill_short(struct gb_grid *grid, const cJSON *objects)
{
    static const char *const titles[] = {"name", "size", "leases", "age", ""};
    int64_t now = wall_clock_ms();

    gb_grid_init(grid, 5);
    if (grid->failed)
        return;
    grid->columns[0].flexible = true;
    grid->columns[1].right = grid->columns[2].right = grid->columns[3].right = true;
    for (size_t i = 0; i < 5; i++)
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    GB_CJSON_EACH(object, objects) {
        gb_grid_text(grid, gb_cjson_string_of(object, "name", ""), GB_STYLE_BOLD);
        add_size(grid, gb_cjson_int_of(object, "bytes", 0));
        add_leases(grid, object);
        add_age(grid, gb_cjson_int_of(object, "created_ms", 0), now);
        add_notes(grid, object);
    }
}

static void fill_long(struct gb_grid *grid, const cJSON *objects)
{
    static const char *const titles[] = {"mode", "user",    "device", "tier",  "share", "size",
                                         "age",  "version", "leases", "short", "name",  ""};
    int64_t now = wall_clock_ms();

    gb_grid_init(grid, 12);
    if (grid->failed)
        return;
    for (size_t i = 5; i < 9; i++)
        grid->columns[i].right = true;
    grid->columns[2].flexible = grid->columns[10].flexible = true;
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

static int print_objects(const struct gb_cli *cli, const cJSON *objects, bool detailed)
{
    struct gb_grid grid;

    if (!objects->child) {
        if (cli->color)
            printf("%sno objects%s\n", gb_style_on(true, GB_STYLE_DIM),
                   gb_style_off(true, GB_STYLE_DIM));
        return GB_STATUS_OK;
    }
    if (detailed)
        fill_long(&grid, objects);
    else
        fill_short(&grid, objects);
    bool done = gb_grid_print(&grid, gb_term_width(), 0, cli->color, false, NULL);
    gb_grid_end(&grid);
    return done ? GB_STATUS_OK : gb_cli_fail(GB_STATUS_FAILED, "out of memory");
}

static void print_names(const cJSON *objects)
{
    GB_CJSON_EACH(object, objects)
        puts(gb_cjson_string_of(object, "name", ""));
}

int gb_cmd_ls(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *objects = NULL;

    int status = gather(cli, args->count ? args->value[0] : NULL, &objects);
    if (status != GB_STATUS_OK)
        return status;
    if (cli->json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddItemToObject(document, "objects", objects);
        gb_cjson_print(document, true);
        cJSON_Delete(document);
        return GB_STATUS_OK;
    }
    if (args->option[NAMES])
        print_names(objects);
    else
        status = print_objects(cli, objects, args->option[LONG] != NULL);
    cJSON_Delete(objects);
    return status;
}
