/* gpubufctl ps [NAME]: who holds, maps and pins what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "format.h"
#include "grid.h"
#include "json_print.h"
#include "memory.h"
#include "term.h"
#include "user_name.h"

enum { MAPPED };

const struct gb_cli_option gb_ps_options[] = {
    {"mapped", 'M', NULL, "also the segments that sessions have mapped", NULL, GB_COMPLETE_NONE},
    {0},
};

static void add_number(struct gb_grid *grid, const cJSON *object, const char *key)
{
    gb_grid_format(grid, GB_STYLE_NONE, "%" PRId64, gb_cjson_int_of(object, key, 0));
}

static void add_bytes(struct gb_grid *grid, const cJSON *object)
{
    char text[32];

    gb_format_size((uint64_t)gb_cjson_int_of(object, "bytes", 0), text, sizeof(text));
    gb_grid_text(grid, text, GB_STYLE_NONE);
}

/* "cached, idle 3s": its session has it at hand, and does not use it. "parked 3s": it has a claim,
   and no memory. */
static void add_access(struct gb_grid *grid, const cJSON *lease)
{
    bool writes = strcmp(gb_cjson_string_of(lease, "access", "r"), "r") != 0;
    char idle[32];

    if (cJSON_HasObjectItem(lease, "parked_ms")) {
        gb_format_age(gb_cjson_int_of(lease, "parked_ms", 0), idle, sizeof(idle));
        gb_grid_format(grid, GB_STYLE_DIM, "parked %s", idle);
        return;
    }
    if (!cJSON_HasObjectItem(lease, "cached_ms")) {
        const char *how = gb_cjson_bool_of(lease, "exclusive") ? "claim" : "write";
        gb_grid_text(grid, writes ? how : "read", writes ? GB_STYLE_YELLOW : GB_STYLE_NONE);
        return;
    }
    gb_format_age(gb_cjson_int_of(lease, "cached_ms", 0), idle, sizeof(idle));
    gb_grid_format(grid, GB_STYLE_DIM, "cached, idle %s", idle);
}

static void fill_leases(struct gb_grid *grid, const cJSON *leases)
{
    static const char *const titles[] = {"session", "pid", "user",    "client", "access",
                                         "size",    "age", "version", "name"};

    gb_grid_init(grid, 9);
    if (grid->failed)
        return;
    grid->columns[0].right = grid->columns[1].right = true;
    grid->columns[5].right = grid->columns[6].right = grid->columns[7].right = true;
    grid->columns[3].flexible = grid->columns[8].flexible = true;
    for (size_t i = 0; i < 9; i++)
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    GB_CJSON_EACH(lease, leases) {
        char age[32], user[64];

        add_number(grid, lease, "session");
        add_number(grid, lease, "pid");
        gb_user_name(gb_cjson_int_of(lease, "uid", -1), user, sizeof(user));
        gb_grid_text(grid, user, GB_STYLE_NONE);
        gb_grid_text(grid, gb_cjson_string_of(lease, "client", ""), GB_STYLE_NONE);
        add_access(grid, lease);
        add_bytes(grid, lease);
        gb_format_age(gb_cjson_int_of(lease, "age_ms", 0), age, sizeof(age));
        gb_grid_text(grid, age, GB_STYLE_NONE);
        if (gb_cjson_int_of(lease, "version", 0) > 0)
            add_number(grid, lease, "version");
        else
            gb_grid_text(grid, "-", GB_STYLE_DIM);
        gb_grid_text(grid, gb_cjson_string_of(lease, "name", ""), GB_STYLE_BOLD);
    }
}

static void add_memory(struct gb_grid *grid, uint64_t bytes, enum gb_style style)
{
    char text[32];

    gb_format_size(bytes, text, sizeof(text));
    gb_grid_text(grid, text, bytes ? style : GB_STYLE_DIM);
}

static void fill_sessions(struct gb_grid *grid, const struct gb_inventory *memory)
{
    static const char *const titles[] = {"session", "pid",    "user", "client", "leases",
                                         "holds",   "caches", "maps", "pins"};

    gb_grid_init(grid, 9);
    if (grid->failed)
        return;
    for (size_t i = 0; i < 9; i++) {
        grid->columns[i].right = i != 2 && i != 3;
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    }
    grid->columns[3].flexible = true;
    for (size_t i = 0; i < memory->sessions_told; i++) {
        const struct gb_inventory_session *session = &memory->sessions[i];
        char user[64];

        gb_grid_format(grid, GB_STYLE_NONE, "%" PRIu64, session->id);
        gb_grid_format(grid, GB_STYLE_NONE, "%" PRId64, session->pid);
        gb_user_name(session->uid, user, sizeof(user));
        gb_grid_text(grid, user, GB_STYLE_NONE);
        gb_grid_text(grid, session->client, GB_STYLE_BOLD);
        gb_grid_format(grid, GB_STYLE_NONE, "%" PRIu64, session->leases);
        add_memory(grid, session->held, GB_STYLE_NONE);
        add_memory(grid, session->cached_bytes, GB_STYLE_NONE);
        add_memory(grid, session->mapped, GB_STYLE_NONE);
        add_memory(grid, session->pins, GB_STYLE_RED);
    }
}

static void fill_mapped(struct gb_grid *grid, const cJSON *mapped)
{
    static const char *const titles[] = {"session", "pid", "segment", "mapped", ""};

    gb_grid_init(grid, 5);
    if (grid->failed)
        return;
    for (size_t i = 0; i < 5; i++) {
        grid->columns[i].right = i < 4;
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    }
    GB_CJSON_EACH(item, mapped) {
        add_number(grid, item, "session");
        add_number(grid, item, "pid");
        add_number(grid, item, "segment");
        add_bytes(grid, item);
        gb_grid_text(grid, gb_cjson_bool_of(item, "retiring") ? "pinned: asked back" : "",
                     GB_STYLE_RED);
    }
}

/* Reads all pages of `sessions` and keeps the sessions that provide names. *found is to be deleted
   with cJSON_Delete. */
static int find_providers(struct gb_cli *cli, cJSON **found)
{
    cJSON *providers = cJSON_CreateArray();
    int64_t cursor = 0;

    do {
        char params[48], *result = NULL;

        snprintf(params, sizeof(params), "{\"cursor\":%" PRId64 "}", cursor);
        int status = gb_cli_call(cli, "sessions", params, &result);
        if (status != GB_STATUS_OK) {
            cJSON_Delete(providers);
            return status;
        }
        cJSON *answer = gb_cjson_parse(result);
        gpubuf_free(result);
        GB_CJSON_EACH(item, cJSON_GetObjectItemCaseSensitive(answer, "sessions")) {
            if (cJSON_HasObjectItem(item, "provides"))
                cJSON_AddItemToArray(providers, cJSON_Duplicate(item, true));
        }
        cursor = gb_cjson_int_of(answer, "cursor", 0);
        cJSON_Delete(answer);
    } while (cursor > 0);
    *found = providers;
    return GB_STATUS_OK;
}

static void fill_providers(struct gb_grid *grid, const cJSON *providers)
{
    static const char *const titles[] = {"session", "pid", "user", "client", "wanted", "provides"};

    gb_grid_init(grid, 6);
    if (grid->failed)
        return;
    for (size_t i = 0; i < 6; i++) {
        grid->columns[i].right = i < 2 || i == 4;
        gb_grid_text(grid, titles[i], GB_STYLE_DIM);
    }
    grid->columns[3].flexible = true;
    GB_CJSON_EACH(item, providers) {
        GB_CJSON_EACH(prefix, cJSON_GetObjectItemCaseSensitive(item, "provides")) {
            char user[64];

            add_number(grid, item, "session");
            add_number(grid, item, "pid");
            gb_user_name(gb_cjson_int_of(item, "uid", -1), user, sizeof(user));
            gb_grid_text(grid, user, GB_STYLE_NONE);
            gb_grid_text(grid, gb_cjson_string_of(item, "client", ""), GB_STYLE_NONE);
            add_number(grid, item, "wanted");
            gb_grid_text(grid, *prefix->valuestring ? prefix->valuestring : "(all names)",
                         GB_STYLE_BOLD);
        }
    }
}

static int print_grid(const struct gb_cli *cli, struct gb_grid *grid, const char *none)
{
    bool color = cli->color, done = true;

    if (grid->column_count && grid->count == grid->column_count) {
        printf("%s%s%s\n", gb_style_on(color, GB_STYLE_DIM), none,
               gb_style_off(color, GB_STYLE_DIM));
    } else {
        done = gb_grid_print(grid, gb_term_width(), 0, color, false, NULL);
    }
    gb_grid_end(grid);
    return done ? GB_STATUS_OK : gb_cli_fail(GB_STATUS_FAILED, "out of memory");
}

static int print_sessions(const struct gb_cli *cli, const struct gb_inventory *memory)
{
    struct gb_grid grid;

    fill_sessions(&grid, memory);
    int status = print_grid(cli, &grid, "no session holds or maps anything");
    putchar('\n');
    return status;
}

static int print_providers(const struct gb_cli *cli, const cJSON *providers)
{
    struct gb_grid grid;

    if (cJSON_GetArraySize(providers) == 0)
        return GB_STATUS_OK;
    fill_providers(&grid, providers);
    int status = print_grid(cli, &grid, "");
    putchar('\n');
    return status;
}

/* Prints who holds the object; without a name first which sessions provide names, then what each
   session holds. */
static int print_answer(const struct gb_cli *cli, const cJSON *answer, const cJSON *providers,
                        const struct gb_inventory *memory, const struct gb_cli_args *args)
{
    struct gb_grid grid;

    int status = print_providers(cli, providers);
    if (status != GB_STATUS_OK)
        return status;
    if (!args->count && memory->sessions_told == 0) {
        puts("nobody holds anything");
        return GB_STATUS_OK;
    }
    status = args->count ? GB_STATUS_OK : print_sessions(cli, memory);
    if (status != GB_STATUS_OK)
        return status;
    fill_leases(&grid, cJSON_GetObjectItemCaseSensitive(answer, "leases"));
    status = print_grid(cli, &grid, "no leases");
    if (status == GB_STATUS_OK && args->option[MAPPED]) {
        putchar('\n');
        fill_mapped(&grid, cJSON_GetObjectItemCaseSensitive(answer, "mapped"));
        status = print_grid(cli, &grid, "nothing mapped");
    }
    if (status == GB_STATUS_OK && memory->truncated)
        puts("and more, which do not fit into one answer");
    return status;
}

int gb_cmd_ps(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *params = cJSON_CreateObject();
    char *result = NULL;

    if (args->count)
        cJSON_AddStringToObject(params, "name", args->value[0]);
    char *text = gb_cjson_text(params);
    cJSON_Delete(params);
    int status = gb_cli_call(cli, "leases", text, &result);
    free(text);
    if (status != GB_STATUS_OK)
        return status;

    cJSON *providers = NULL;
    status = args->count ? GB_STATUS_OK : find_providers(cli, &providers);
    if (status != GB_STATUS_OK) {
        gpubuf_free(result);
        return status;
    }
    struct gb_inventory memory = {.place_count = 0};
    cJSON *answer = gb_cjson_parse(result);
    gpubuf_free(result);
    if (!answer || !gb_inventory_read_leases(&memory, answer)) {
        status = gb_cli_fail(GB_STATUS_FAILED, "the daemon's answer to leases makes no sense");
    } else if (cli->json) {
        cJSON_AddItemToObject(answer, "sessions", gb_inventory_sessions_json(&memory, SIZE_MAX));
        if (providers)
            cJSON_AddItemToObject(answer, "providers", cJSON_Duplicate(providers, true));
        gb_cjson_print(answer, true);
    } else {
        status = print_answer(cli, answer, providers, &memory, args);
    }
    gb_inventory_end(&memory);
    cJSON_Delete(providers);
    cJSON_Delete(answer);
    return status;
}
