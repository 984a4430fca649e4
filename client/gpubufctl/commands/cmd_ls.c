/* gpubufctl ls [PREFIX|PATTERN] */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/answers/cluster.h"
#include "client/gpubufctl/answers/names.h"
#include "client/gpubufctl/answers/table.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

enum { LONG, NAMES, KIND, SORT, TOTAL, VERSIONS, CLUSTER };

const struct gb_cli_option gb_ls_options[] = {
    {"long", 'l', NULL, "also mode, user, device, tier, version and more", NULL},
    {"names", '1', NULL, "only the names, one a line", NULL},
    {"kind", 'k', "KIND", "only sealed objects, live ones, or streams", "sealed live stream"},
    {"sort", 's', "ORDER",
     "name; or size, idle, created: the largest, longest idle, newest first (name)",
     "name size idle created"},
    {"total", 't', NULL, "also their number and total bytes", NULL},
    {"versions", 'v', NULL, "also older versions, and those that only readers still have", NULL},
    {"cluster", 'c', NULL, "names of any machine of the cluster, from this one's peer", NULL},
    {0},
};

/* "live", "pinned", "cluster", "drop", "ttl 5 min": what sets an object apart. */
static void add_notes(struct gb_grid *grid, const cJSON *object)
{
    const char *evict = gb_cjson_string_of(object, "evict", "spill");
    int64_t ttl = gb_cjson_int_of(object, "ttl_ms", 0);
    struct gb_writer text;

    gb_writer_init(&text, 0);
    gb_kind_write(&text, object);
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
    if (ttl > 0)
        gb_write_format(&text, "ttl %s ", gb_age(ttl).text);
    gb_grid_add(grid, text.length ? text.data : "", text.length ? text.length - 1 : 0,
                GB_STYLE_YELLOW);
    gb_writer_end(&text);
}

static void print_short(const struct gb_cli *cli, const cJSON *objects, bool versions)
{
    const struct gb_table_column columns[] = {
        {"name", "name", .style = GB_STYLE_BOLD, .flexible = true},
        {"version", "version", GB_CELL_NUMBER, .hidden = !versions}, /* names come more than once */
        {"size", "bytes", .cell = GB_CELL_SIZE},
        {"leases", "leases", GB_CELL_COUNT, GB_STYLE_GREEN, .leaves = 2},
        {"age", "created_ms", GB_CELL_SINCE, .leaves = 3},
        {"notes", .leaves = 1, .add = add_notes},
    };

    gb_table_print(cli, GB_TABLE(columns), objects);
}

static void print_long(const struct gb_cli *cli, const cJSON *objects)
{
    static const struct gb_table_column columns[] = {
        {"mode", "mode", .leaves = 6},
        {"user", "uid", GB_CELL_USER, .leaves = 4},
        {"device", "device", .flexible = true, .leaves = 5},
        {"tier", "tier", .leaves = 3},
        {"share", "share", .leaves = 10},
        {"size", "bytes", .cell = GB_CELL_SIZE},
        {"age", "created_ms", GB_CELL_SINCE, .leaves = 2},
        {"version", "version", GB_CELL_NUMBER, .leaves = 9},
        {"leases", "leases", GB_CELL_COUNT, GB_STYLE_GREEN, .leaves = 8},
        {"short", "when_short", .leaves = 7},
        {"name", "name", .style = GB_STYLE_BOLD, .flexible = true},
        {"notes", .leaves = 1, .add = add_notes},
    };

    gb_table_print(cli, GB_TABLE(columns), objects);
}

static void print_objects(const struct gb_cli *cli, const cJSON *objects, const char *const *option)
{
    if (!objects->child && cli->color)
        printf("%sno objects%s\n", gb_style_on(true, GB_STYLE_DIM),
               gb_style_off(true, GB_STYLE_DIM));
    else if (objects->child && option[LONG])
        print_long(cli, objects);
    else if (objects->child)
        print_short(cli, objects, option[VERSIONS]);
}

static void print_names(const cJSON *objects)
{
    GB_CJSON_EACH(object, objects)
        puts(gb_cjson_string_of(object, "name", ""));
}

/* ---- order and total ---- */

static int64_t total_bytes(const cJSON *objects)
{
    int64_t total = 0;

    GB_CJSON_EACH(object, objects)
        total += gb_cjson_int_of(object, "bytes", 0);
    return total;
}

static void print_total(const cJSON *objects)
{
    int count = cJSON_GetArraySize(objects);

    printf("%s object%s, %s\n", gb_count((uint64_t)count).text, count == 1 ? "" : "s",
           gb_size((uint64_t)total_bytes(objects)).text);
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

/* Leaves only those of that kind. */
static void keep_kind(cJSON *objects, const char *kind)
{
    for (cJSON *object = objects->child, *next; object; object = next) {
        next = object->next;
        if (strcmp(gb_kind_of(object), kind) != 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(objects, object));
    }
}

/* Finds the objects that match a pattern; if none does, those whose names start with the text
   itself. */
static cJSON *find(struct gb_cli *cli, const char *text, bool versions)
{
    bool pattern = text && gb_names_is_pattern(text);
    cJSON *objects = gb_found_names(cli, text, pattern, versions);

    if (!pattern || objects->child)
        return objects;
    cJSON_Delete(objects);
    objects = gb_found_names(cli, text, false, versions);
    if (!objects->child)
        gb_names_none(text);
    return objects;
}

void gb_cmd_ls(struct gb_cli *cli, struct gb_cli_args *args)
{
    static const char *const keys[] = {NULL, NULL, "bytes", "idle_ms", "created_ms"};
    const char *key = keys[args->number[SORT]], *text = args->count ? args->value[0] : NULL;

    if (args->option[CLUSTER]) {
        if (args->option[LONG] || args->option[KIND] || args->option[SORT] || args->option[TOTAL] ||
            args->option[VERSIONS] || (text && gb_names_is_pattern(text)))
            gb_cli_usage(cli, "--cluster goes with PREFIX and --names alone");
        gb_cluster_ls(cli, text, args->option[NAMES] != NULL);
        return;
    }
    cJSON *objects = find(cli, text, args->option[VERSIONS] != NULL);
    if (args->option[KIND])
        keep_kind(objects, args->option[KIND]);
    if (key)
        gb_cjson_sort(objects, key, NULL);
    if (cli->json)
        print_json(objects, args->option[TOTAL] != NULL);
    else if (args->option[NAMES])
        print_names(objects);
    else
        print_objects(cli, objects, args->option);
    if (args->option[TOTAL] && !cli->json)
        print_total(objects);
    cJSON_Delete(objects);
}
