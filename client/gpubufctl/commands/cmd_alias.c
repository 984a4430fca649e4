/* gpubufctl alias NEW OF: one object, another name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"

enum { SLICE, COLUMN, MODE, REPLACE };

const struct gb_cli_option gb_alias_options[] = {
    {"slice", 's', "A:B", "only rows or elements A to B (not included)", NULL},
    {"column", 'c', "A,B,…", "only these columns of a table, in this order", NULL},
    {"mode", 'm', "MODE", "who may open (4) and replace (2) it, octal (as the source)",
     "600 640 644 660 666"},
    {"replace", 'r', NULL, "take the name from an object that has it", NULL},
    {0},
};

/* Turns a slice as typed into an offset and a count; this needs the length of the source. One past
   the end is refused: the alias would lack what was asked for. */
static void settle_slice(const struct gb_cli *cli, const char *of,
                         const struct gb_slice_text *slice, struct gpubuf_alias_options *options)
{
    struct gpubuf_object *object = NULL;

    gb_cli_check(cli, gpubuf_open(cli->client, of, NULL, &object), "cannot open %s", of);
    uint64_t length = gpubuf_length(object);
    if ((slice->has_start && slice->start > (int64_t)length) ||
        (slice->has_stop && slice->stop > (int64_t)length))
        gb_cli_fail(GB_STATUS_FAILED, "--slice goes past the end of %s, which has %" PRIu64, of,
                    length);
    gb_slice_resolve(slice, length, &options->offset, &options->length);
    options->slice = true;
    gpubuf_release(object);
}

void gb_cmd_alias(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct gpubuf_alias_options options = {
        .size = sizeof(options),
        .replace = args->option[REPLACE] != NULL,
        .mode = (unsigned)args->number[MODE],
    };
    const char *name = args->value[0], *of = args->value[1];
    struct gb_slice_text slice;
    struct gb_error error;
    const char **columns = NULL;

    if (args->option[SLICE] && gb_parse_slice(args->option[SLICE], &slice, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    gb_cli_connect(cli);
    if (args->option[SLICE])
        settle_slice(cli, of, &slice, &options);
    if (args->option[COLUMN])
        options.columns = columns = gb_parse_list(args->option[COLUMN]);
    gb_cli_check(cli, gpubuf_alias(cli->client, name, of, &options), "cannot name %s after %s",
                 name, of);
    if (cli->json)
        gb_cjson_print_pattern("{'name':%s,'of':%s}", name, of);
    free(columns);
}
