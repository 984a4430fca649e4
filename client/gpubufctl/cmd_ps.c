/* gpubufctl ps [NAME]: who holds what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "format.h"
#include "grid.h"
#include "json_print.h"
#include "term.h"

enum { MAPPED };

const struct gb_cli_option gb_ps_options[] = {
    {"mapped", 'M', NULL, "also the segments that sessions have mapped", NULL, GB_COMPLETE_NONE},
    {0},
};

static void add_number(struct gb_grid *grid, const cJSON *object, const char *key)
{
    gb_grid_format(grid, GB_STYLE_NONE, "%" PRId64, gb_json_int_of(object, key, 0));
}

static void add_bytes(struct gb_grid *grid, const cJSON *object)
{
    char text[32];

    gb_format_size((uint64_t)gb_json_int_of(object, "bytes", 0), text, sizeof(text));
    gb_grid_text(grid, text, GB_STYLE_NONE);
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
    GB_JSON_EACH(lease, leases) {
        bool writes = strcmp(gb_json_string_of(lease, "access", "r"), "r") != 0;
        char age[32], user[64];

        add_number(grid, lease, "session");
        add_number(grid, lease, "pid");
        gb_user_name(gb_json_int_of(lease, "uid", -1), user, sizeof(user));
        gb_grid_text(grid, user, GB_STYLE_NONE);
        gb_grid_text(grid, gb_json_string_of(lease, "client", ""), GB_STYLE_NONE);
        gb_grid_text(grid, writes ? "write" : "read", writes ? GB_STYLE_YELLOW : GB_STYLE_NONE);
        add_bytes(grid, lease);
        gb_format_age(gb_json_int_of(lease, "age_ms", 0), age, sizeof(age));
        gb_grid_text(grid, age, GB_STYLE_NONE);
        if (gb_json_int_of(lease, "version", 0) > 0)
            add_number(grid, lease, "version");
        else
            gb_grid_text(grid, "-", GB_STYLE_DIM);
        gb_grid_text(grid, gb_json_string_of(lease, "name", ""), GB_STYLE_BOLD);
    }
}

static void fill_mapped(struct gb_grid *grid, const cJSON *mapped)
{

    gb_grid_init(grid, 3);
    if (grid->failed)
        return;
    for (size_t i = 0; i < 3; i++)
        grid->columns[i].right = true;
    gb_grid_text(grid, "session", GB_STYLE_DIM);
    gb_grid_text(grid, "segment", GB_STYLE_DIM);
    gb_grid_text(grid, "mapped", GB_STYLE_DIM);
    GB_JSON_EACH(item, mapped) {
        add_number(grid, item, "session");
        add_number(grid, item, "segment");
        add_bytes(grid, item);
    }
}

static int print_grid(const struct gb_cli *cli, struct gb_grid *grid, const char *none)
{
    bool color = cli->color, done = true;

    if (grid->column_count && grid->count == grid->column_count) {
        if (color)
            printf("%s%s%s\n", gb_style_on(true, GB_STYLE_DIM), none,
                   gb_style_off(true, GB_STYLE_DIM));
    } else {
        done = gb_grid_print(grid, gb_term_width(), 0, color, false, NULL);
    }
    gb_grid_end(grid);
    return done ? GB_STATUS_OK : gb_cli_fail(GB_STATUS_FAILED, "out of memory");
}

static int print_answer(const struct gb_cli *cli, const cJSON *answer, bool mapped)
{
    struct gb_grid grid;

    fill_leases(&grid, cJSON_GetObjectItemCaseSensitive(answer, "leases"));
    int status = print_grid(cli, &grid, "no leases");
    if (status != GB_STATUS_OK || !mapped)
        return status;
    putchar('\n');
    fill_mapped(&grid, cJSON_GetObjectItemCaseSensitive(answer, "mapped"));
    return print_grid(cli, &grid, "nothing mapped");
}

int gb_cmd_ps(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *params = cJSON_CreateObject();
    char *result = NULL;

    if (args->count)
        cJSON_AddStringToObject(params, "name", args->value[0]);
    char *text = gb_json_text(params);
    cJSON_Delete(params);
    int status = gb_cli_call(cli, "leases", text, &result);
    free(text);
    if (status != GB_STATUS_OK)
        return status;

    cJSON *answer = gb_json_parse(result);
    gpubuf_free(result);
    if (!answer)
        status = gb_cli_fail(GB_STATUS_FAILED, "the daemon's answer to leases makes no sense");
    else if (cli->json)
        gb_json_print(answer, true);
    else
        status = print_answer(cli, answer, args->option[MAPPED] != NULL);
    cJSON_Delete(answer);
    return status;
}
