/* gpubufctl where NAME */
#include <stdio.h>
#include <string.h>

#include "cluster.h"
#include "commands.h"
#include "json_print.h"
#include "term.h"

enum { PEER_SOCKET };

const struct gb_cli_option gb_where_options[] = {GB_CLUSTER_OPTION, {0}};

static bool print_places(const struct gb_cli *cli, const cJSON *answer)
{
    static const char *const titles[] = {"node", "", "size", "version", "age", "address"};
    const char *self = gb_cjson_string_of(answer, "node", "");
    struct gb_grid grid;

    gb_grid_init(&grid, 6);
    if (grid.failed)
        return false;
    grid.columns[1].flexible = true;
    for (size_t i = 0; i < 6; i++) {
        grid.columns[i].right = i > 1 && i < 5;
        gb_grid_text(&grid, titles[i], GB_STYLE_DIM);
    }
    GB_CJSON_EACH(place, cJSON_GetObjectItemCaseSensitive(answer, "places")) {
        const char *node = gb_cjson_string_of(place, "node", "");
        const char *origin = gb_cjson_string_of(place, "origin", "");
        gb_grid_text(&grid, node, GB_STYLE_BOLD);
        gb_grid_format(&grid, GB_STYLE_NONE, "%s%s",
                       strcmp(node, origin) == 0 ? "owner" : "copy of ",
                       strcmp(node, origin) == 0 ? "" : origin);
        gb_cluster_cells(&grid, place);
        gb_cluster_age(&grid, place);
        if (strcmp(node, self) == 0)
            gb_grid_text(&grid, "here", GB_STYLE_DIM);
        else
            gb_grid_format(&grid, GB_STYLE_DIM, "%s:%d", gb_cjson_string_of(place, "host", ""),
                           (int)gb_cjson_int_of(place, "port", 0));
    }
    bool done = gb_grid_print(&grid, gb_term_width(), 0, cli->color, false, NULL);
    gb_grid_end(&grid);
    return done;
}

int gb_cmd_where(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *question = cJSON_CreateObject(), *answer;

    cJSON_AddStringToObject(question, "method", "where");
    cJSON_AddStringToObject(question, "name", args->value[0]);
    int status = gb_cluster_ask(args->option[PEER_SOCKET], question, &answer);
    cJSON_Delete(question);
    if (status != GB_STATUS_OK)
        return status;
    const char *why = gb_cjson_string_of(answer, "why", "");
    if (cli->json)
        gb_cjson_print(answer, true);
    else if (!print_places(cli, answer))
        status = gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    else if (*why)
        status = gb_cli_fail(GB_STATUS_FAILED, "other machines could not be asked: %s", why);
    cJSON_Delete(answer);
    return status;
}
