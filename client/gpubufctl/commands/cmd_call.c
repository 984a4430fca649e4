/* gpubufctl call METHOD [JSON], describe: the protocol itself. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"
#include "proto/wire/json.h"

void gb_cmd_call(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *params = args->count > 1 ? args->value[1] : NULL;
    struct gb_pool pool = {0};
    struct gb_json checked;
    struct gb_error error;

    /* A request is one line, which the library writes around these parameters. */
    if (params && gb_json_check(params, strlen(params), &pool, &checked, &error) < 0)
        gb_cli_usage(cli, "the parameters are not JSON: %s", error.message);
    if (params && gb_json_type(checked) != GB_JSON_OBJECT)
        gb_cli_usage(cli, "the parameters are to be a JSON object, such as {\"name\":\"movies\"}");
    gb_pool_end(&pool);
    char *result = gb_cli_call(cli, args->value[0], params);
    cJSON *value = gb_cjson_parse(result);
    if (value)
        gb_cjson_print(value, true);
    else
        puts(result);
    cJSON_Delete(value);
    gpubuf_free(result);
}
