/* gpubufctl where NAME */
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/answers/cluster.h"
#include "client/gpubufctl/answers/table.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"

static void add_role(struct gb_grid *grid, const cJSON *place)
{
    const char *origin = gb_cjson_string_of(place, "origin", "");
    bool owner = strcmp(gb_cjson_string_of(place, "node", ""), origin) == 0;

    gb_grid_format(grid, GB_STYLE_NONE, "%s%s", owner ? "owner" : "copy of ", owner ? "" : origin);
}

static void add_address(struct gb_grid *grid, const cJSON *place)
{
    if (gb_cjson_bool_of(place, "here"))
        gb_grid_text(grid, "here", GB_STYLE_DIM);
    else
        gb_grid_format(grid, GB_STYLE_DIM, "%s:%d", gb_cjson_string_of(place, "host", ""),
                       (int)gb_cjson_int_of(place, "port", 0));
}

static void print_places(const struct gb_cli *cli, const cJSON *answer)
{
    static const struct gb_table_column columns[] = {
        {"node", "node", .style = GB_STYLE_BOLD}, {"", .flexible = true, .add = add_role},
        {"size", "bytes", .cell = GB_CELL_SIZE},  {"version", "version", .cell = GB_CELL_NUMBER},
        {"age", "since", .cell = GB_CELL_SINCE},  {"address", .add = add_address},
    };
    cJSON *places = gb_cjson_member(answer, "places");
    const char *self = gb_cjson_string_of(answer, "node", "");

    for (cJSON *place = places ? places->child : NULL; place; place = place->next)
        if (strcmp(gb_cjson_string_of(place, "node", ""), self) == 0)
            cJSON_AddTrueToObject(place, "here");
    gb_table_print(cli, GB_TABLE(columns), places);
}

void gb_cmd_where(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *question = gb_cjson("{'method':'where','name':%s}", args->value[0]);
    cJSON *answer = gb_cluster_ask(question);
    const char *why = gb_cjson_string_of(answer, "why", "");

    if (cli->json)
        gb_cjson_print(answer, true);
    else
        print_places(cli, answer);
    if (*why && !cli->json)
        gb_cli_fail(GB_STATUS_FAILED, "other machines could not be asked: %s", why);
    cJSON_Delete(question);
    cJSON_Delete(answer);
}
