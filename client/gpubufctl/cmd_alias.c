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

/* With --json, what has been done. */
static int print_alias(const struct gb_cli *cli, const char *name, const char *of)
{
    if (!cli->json)
        return GB_STATUS_OK;
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "name", name);
    cJSON_AddStringToObject(answer, "of", of);
    gb_cjson_print(answer, true);
    cJSON_Delete(answer);
    return GB_STATUS_OK;
}

/* Turns a slice as typed into an offset and a count; this needs the length of the source. */
static int settle_slice(struct gb_cli *cli, const char *of, const struct gb_slice_text *slice,
                        struct gpubuf_alias_options *options)
{
    struct gpubuf_object *object = NULL;

    int code = gpubuf_open(cli->client, of, NULL, &object);
    if (code < 0)
        return gb_cli_error(cli, code, "cannot open %s", of);
    gb_slice_resolve(slice, gpubuf_length(object), &options->offset, &options->length);
    options->slice = true;
    gpubuf_release(object);
    return GB_STATUS_OK;
}

int gb_cmd_alias(struct gb_cli *cli, struct gb_cli_args *args)
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
        return gb_cli_usage(cli, "%s", error.message);
    int status = gb_cli_connect(cli);
    if (status == GB_STATUS_OK && args->option[SLICE])
        status = settle_slice(cli, of, &slice, &options);
    if (status != GB_STATUS_OK)
        return status;
    if (args->option[COLUMNS])
        options.columns = columns = gb_parse_list(args->option[COLUMNS]);
    if (args->option[PARTS])
        options.parts = parts = gb_parse_list(args->option[PARTS]);
    bool made = (columns || !args->option[COLUMNS]) && (parts || !args->option[PARTS]);
    int code = made ? gpubuf_alias(cli->client, name, of, &options) : GPUBUF_E_NO_MEMORY;
    free(columns);
    free(parts);
    if (!made)
        return gb_cli_fail(GB_STATUS_FAILED, "out of memory");
    return code == 0 ? print_alias(cli, name, of)
                     : gb_cli_error(cli, code, "cannot name %s after %s", name, of);
}

int gb_cmd_cp(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct gpubuf_alias_options options = {
        .size = sizeof(options),
        .replace = args->option[COPY_REPLACE] != NULL,
    };
    const char *from = args->value[0], *to = args->value[1];

    int status = gb_cli_connect(cli);
    if (status != GB_STATUS_OK)
        return status;
    int code = gpubuf_alias(cli->client, to, from, &options);
    return code == 0 ? print_alias(cli, to, from)
                     : gb_cli_error(cli, code, "cannot name %s as %s", from, to);
}

/* Reads the version that the name has now. mv removes that one only: should another object take the
   name meanwhile, it stays. */
static int read_version(struct gb_cli *cli, const char *name, uint64_t *version, bool *ends)
{
    cJSON *answer;
    int status = gb_cli_stat(cli, false, name, 0, NULL, &answer);

    if (status != GB_STATUS_OK)
        return status;
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(answer, "object");
    *version = (uint64_t)gb_cjson_int_of(object, "version", 0);
    *ends = gb_cjson_int_of(object, "ttl_ms", 0) > 0;
    cJSON_Delete(answer);
    return *version ? GB_STATUS_OK
                    : gb_cli_fail(GB_STATUS_FAILED, "the daemon tells no version of %s", name);
}

/* First the new name, then the old one goes: whatever happens in between, there is a name left. */
int gb_cmd_mv(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *from = args->value[0], *to = args->value[1];
    uint64_t version;
    bool ends;

    if (strcmp(from, to) == 0)
        return gb_cli_usage(cli, "%s has that name already", from);
    int status = read_version(cli, from, &version, &ends);
    if (status == GB_STATUS_OK && ends)
        return gb_cli_fail(GB_STATUS_FAILED,
                           "cannot rename %s: it ends after some time (--ttl), which a new name "
                           "cannot take along",
                           from);
    if (status == GB_STATUS_OK)
        status = gb_cmd_cp(cli, args);
    if (status != GB_STATUS_OK)
        return status;
    int code = gpubuf_delete_version(cli->client, from, version, NULL);
    return code == 0 || code == GPUBUF_E_NOT_FOUND
               ? GB_STATUS_OK
               : gb_cli_error(cli, code, "%s has the name %s too, since %s cannot be removed", from,
                              to, from);
}
