/* gpubufctl alias NEW OF; cp and mv FROM TO: one object, another name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "json_print.h"
#include "parse.h"

enum { SLICE, COLUMNS, PARTS, MODE, REPLACE };

const struct gb_cli_option gb_alias_options[] = {
    {"slice", 's', "A:B", "only rows or elements A to B (not included)", NULL},
    {"columns", 'c', "A,B,…", "only these columns of a table, in this order", NULL},
    {"parts", 'p', "A,B,…", "only these tensors of a bundle; all that begin with A.: 'A.*'", NULL},
    {"mode", 'm', "MODE", "who may open (4) and replace (2) it, octal (as the source)",
     "600 640 644 660 666"},
    {"replace", 'r', NULL, "take the name from an object that has it", NULL},
    {0},
};

enum { COPY_REPLACE };

const struct gb_cli_option gb_copy_options[] = {
    {"replace", 'r', NULL, "take the name from an object that has it", NULL},
    {0},
};

/* Gives the object another name; with --json, tells what has been done. */
static void name_after(const struct gb_cli *cli, const char *name, const char *of, const char *how,
                       const struct gpubuf_alias_options *options)
{
    bool copies = strcmp(how, "as") == 0;

    gb_cli_check(cli, gpubuf_alias(cli->client, name, of, options), "cannot name %s %s %s",
                 copies ? of : name, how, copies ? name : of);
    if (cli->json)
        gb_cjson_tell("{'name':%s,'of':%s}", name, of);
}

/* Turns a slice as typed into an offset and a count; this needs the length of the source. */
static void settle_slice(const struct gb_cli *cli, const char *of,
                         const struct gb_slice_text *slice, struct gpubuf_alias_options *options)
{
    struct gpubuf_object *object = NULL;

    gb_cli_check(cli, gpubuf_open(cli->client, of, NULL, &object), "cannot open %s", of);
    gb_slice_resolve(slice, gpubuf_length(object), &options->offset, &options->length);
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
    const char **columns = NULL, **parts = NULL;

    if (args->option[SLICE] && gb_parse_slice(args->option[SLICE], &slice, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    gb_cli_connect(cli);
    if (args->option[SLICE])
        settle_slice(cli, of, &slice, &options);
    if (args->option[COLUMNS])
        options.columns = columns = gb_parse_list(args->option[COLUMNS]);
    if (args->option[PARTS])
        options.parts = parts = gb_parse_list(args->option[PARTS]);
    name_after(cli, name, of, "after", &options);
    free(columns);
    free(parts);
}

void gb_cmd_cp(struct gb_cli *cli, struct gb_cli_args *args)
{
    const struct gpubuf_alias_options options = {
        .size = sizeof(options),
        .replace = args->option[COPY_REPLACE] != NULL,
    };

    gb_cli_connect(cli);
    name_after(cli, args->value[1], args->value[0], "as", &options);
}

/* First the new name, then the old one goes: whatever happens in between, there is a name left. It
   removes the version that the old name had at first: should another object take the name
   meanwhile, it stays. */
void gb_cmd_mv(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *from = args->value[0], *to = args->value[1];

    if (strcmp(from, to) == 0)
        gb_cli_usage(cli, "%s has that name already", from);
    cJSON *answer = gb_cli_stat(cli, false, from, 0, NULL);
    const cJSON *object = gb_cjson_member(answer, "object");
    uint64_t version = (uint64_t)gb_cjson_int_of(object, "version", 0);
    if (!version)
        gb_cli_fail(GB_STATUS_FAILED, "the daemon tells no version of %s", from);
    if (gb_cjson_int_of(object, "ttl_ms", 0) > 0)
        gb_cli_fail(GB_STATUS_FAILED,
                    "cannot rename %s: it ends after some time (--ttl), which a new name cannot "
                    "take along",
                    from);
    cJSON_Delete(answer);
    gb_cmd_cp(cli, args);
    int code = gpubuf_delete_version(cli->client, from, version, NULL);
    if (code != GPUBUF_E_NOT_FOUND)
        gb_cli_check(cli, code, "%s has the name %s too, since %s cannot be removed", from, to,
                     from);
}
