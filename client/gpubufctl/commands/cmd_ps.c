/* gpubufctl ps [NAME]: who holds, maps and pins what. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/answers/memory.h"
#include "client/gpubufctl/answers/table.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

enum { MAPPED };

#define GROUP "group" /* that member of a session */

const struct gb_cli_option gb_ps_options[] = {
    {"mapped", 'M', NULL, "also the segments that sessions have mapped", NULL},
    {0},
};

/* "cached, idle 3s": its session has it at hand, and does not use it. "parked 3s": it has a claim,
   and no memory. */
static void add_access(struct gb_grid *grid, const cJSON *lease)
{
    bool writes = strcmp(gb_cjson_string_of(lease, "access", "r"), "r") != 0;
    int64_t parked = gb_cjson_int_of(lease, "parked_ms", -1);
    int64_t cached = gb_cjson_int_of(lease, "cached_ms", -1);

    if (parked >= 0)
        gb_grid_format(grid, GB_STYLE_DIM, "parked %s", gb_age(parked).text);
    else if (cached >= 0)
        gb_grid_format(grid, GB_STYLE_DIM, "cached, idle %s", gb_age(cached).text);
    else if (writes)
        gb_grid_text(grid, gb_cjson_bool_of(lease, "exclusive") ? "claim" : "write",
                     GB_STYLE_YELLOW);
    else
        gb_grid_text(grid, "read", GB_STYLE_NONE);
}

static const struct gb_table_column leases[] = {
    {"session", "session", .cell = GB_CELL_NUMBER},
    {"pid", "pid", .cell = GB_CELL_NUMBER},
    {"user", "uid", .cell = GB_CELL_USER},
    {"client", "client", .flexible = true},
    {"access", .add = add_access},
    {"size", "bytes", .cell = GB_CELL_SIZE},
    {"age", "age_ms", .cell = GB_CELL_AGE},
    {"version", "version", .cell = GB_CELL_NUMBER},
    {"name", "name", .style = GB_STYLE_BOLD, .flexible = true},
};

/* The part of a control group's path that names it: of a pod's `pod` and its uid, else the last. */
static const char *part_of(char *path)
{
    const char *last = strrchr(path, '/') + 1;

    for (char *pod = path; (pod = strstr(pod + 1, "pod"));) {
        if ((pod[-1] != '/' && pod[-1] != '-') || !isxdigit((unsigned char)pod[3]))
            continue;
        pod[strcspn(pod, "/.")] = '\0';
        return pod;
    }
    return last;
}

/* Notes the control group of each session's process, where that can be seen and is not the root's.
   Of cgroup v1 that which bounds memory. Returns whether there is any. */
static bool add_groups(cJSON *list)
{
    bool any = false;
    cJSON *session;

    cJSON_ArrayForEach(session, list)
    {
        char name[64], line[4096];
        (void)snprintf(name, sizeof(name), "/proc/%" PRId64 "/cgroup",
                       gb_cjson_int_of(session, "pid", 0));
        FILE *file = fopen(name, "re");
        while (file && fgets(line, sizeof(line), file)) {
            char *path = strchr(line, '/');
            if (!path || (strncmp(line, "0::", 3) != 0 && !strstr(line, ":memory:")))
                continue;
            path[strcspn(path, "\n")] = '\0';
            if (path[1] && !cJSON_HasObjectItem(session, GROUP))
                any |= cJSON_AddStringToObject(session, GROUP, part_of(path)) != NULL;
        }
        if (file)
            (void)fclose(file);
    }
    return any;
}

enum { GROUP_COLUMN = 4 };
static const struct gb_table_column sessions[] = {
    {"session", "session", .cell = GB_CELL_NUMBER},
    {"pid", "pid", .cell = GB_CELL_NUMBER},
    {"user", "uid", .cell = GB_CELL_USER},
    {"client", "client", .style = GB_STYLE_BOLD, .flexible = true},
    [GROUP_COLUMN] = {GROUP, GROUP, .flexible = true},
    {"leases", "leases", .cell = GB_CELL_COUNT},
    {"holds", "holds", .cell = GB_CELL_SIZE},
    {"caches", "cached_bytes", .cell = GB_CELL_SIZE},
    {"maps", "maps", .cell = GB_CELL_SIZE},
    {"pins", "pins", GB_CELL_SIZE, .style = GB_STYLE_RED},
};

static void add_retiring(struct gb_grid *grid, const cJSON *segment)
{
    gb_grid_text(grid, gb_cjson_bool_of(segment, "retiring") ? "pinned: asked back" : "",
                 GB_STYLE_RED);
}

static const struct gb_table_column mapped[] = {
    {"session", "session", .cell = GB_CELL_NUMBER},
    {"pid", "pid", .cell = GB_CELL_NUMBER},
    {"segment", "segment", .cell = GB_CELL_NUMBER},
    {"mapped", "bytes", .cell = GB_CELL_SIZE},
    {"", .add = add_retiring},
};

static const struct gb_table_column providers[] = {
    {"session", "session", .cell = GB_CELL_NUMBER}, {"pid", "pid", .cell = GB_CELL_NUMBER},
    {"user", "uid", .cell = GB_CELL_USER},          {"client", "client", .flexible = true},
    {"wanted", "wanted", .cell = GB_CELL_COUNT},    {"provides", "prefix", .style = GB_STYLE_BOLD},
};

/* Reads all pages of `sessions` and keeps the sessions that provide names. */
static cJSON *find_providers(struct gb_cli *cli)
{
    cJSON *told = cJSON_CreateArray();
    int64_t cursor = 0;

    do {
        cJSON *answer = gb_cli_ask(cli, "sessions", gb_cjson("{'cursor':%" PRId64 "}", cursor));
        GB_CJSON_EACH(item, gb_cjson_member(answer, "sessions")) {
            if (cJSON_HasObjectItem(item, "provides"))
                cJSON_AddItemToArray(told, cJSON_Duplicate(item, true));
        }
        cursor = gb_cjson_int_of(answer, "cursor", 0);
        cJSON_Delete(answer);
    } while (cursor > 0);
    return told;
}

/* A line for each prefix. */
static cJSON *prefixes_of(const cJSON *sessions_told)
{
    cJSON *list = cJSON_CreateArray();

    GB_CJSON_EACH(item, sessions_told) {
        GB_CJSON_EACH(prefix, gb_cjson_member(item, "provides")) {
            cJSON *line = cJSON_Duplicate(item, true);
            cJSON_AddStringToObject(line, "prefix",
                                    *prefix->valuestring ? prefix->valuestring : "(all names)");
            cJSON_AddItemToArray(list, line);
        }
    }
    return list;
}

static void print_list(const struct gb_cli *cli, const struct gb_table_column *columns,
                       size_t count, const cJSON *list, const char *none)
{
    if (gb_cjson_first(list))
        gb_table_print(cli, columns, count, list);
    else
        printf("%s%s%s\n", gb_style_on(cli->color, GB_STYLE_DIM), none,
               gb_style_off(cli->color, GB_STYLE_DIM));
}

/* Prints who holds the object; without a name first which sessions provide names, then what each
   session holds. */
static void print_answer(const struct gb_cli *cli, const cJSON *answer, const cJSON *provided,
                         const struct gb_inventory *memory, bool has_groups,
                         const struct gb_cli_args *args)
{
    cJSON *lines = prefixes_of(provided);
    struct gb_table_column columns[sizeof(sessions) / sizeof(*sessions)];

    memcpy(columns, sessions, sizeof(sessions));
    columns[GROUP_COLUMN].hidden = !has_groups;
    if (lines->child) {
        gb_table_print(cli, GB_TABLE(providers), lines);
        putchar('\n');
    }
    cJSON_Delete(lines);
    if (!args->count && !gb_cjson_first(memory->sessions)) {
        puts("nobody holds anything");
        return;
    }
    if (!args->count) {
        gb_table_print(cli, GB_TABLE(columns), memory->sessions);
        putchar('\n');
    }
    print_list(cli, GB_TABLE(leases), gb_cjson_member(answer, "leases"), "no leases");
    if (args->option[MAPPED]) {
        putchar('\n');
        print_list(cli, GB_TABLE(mapped), gb_cjson_member(answer, "mapped"), "nothing mapped");
    }
    if (memory->truncated)
        puts("and more, which do not fit into one answer");
}

void gb_cmd_ps(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *params = args->count ? gb_cjson("{'name':%s}", args->value[0]) : NULL;
    cJSON *answer = gb_cli_ask(cli, "leases", params);
    cJSON *provided = args->count ? NULL : find_providers(cli);
    struct gb_inventory memory = {.place_count = 0};

    if (!gb_inventory_read_leases(&memory, answer))
        gb_cli_no_sense("leases");
    bool has_groups = add_groups(memory.sessions);
    if (cli->json) {
        cJSON_AddItemToObject(answer, "sessions", cJSON_Duplicate(memory.sessions, true));
        if (provided)
            cJSON_AddItemToObject(answer, "providers", cJSON_Duplicate(provided, true));
        gb_cjson_print(answer, true);
    } else {
        print_answer(cli, answer, provided, &memory, has_groups, args);
    }
    gb_inventory_end(&memory);
    cJSON_Delete(provided);
    cJSON_Delete(answer);
}
