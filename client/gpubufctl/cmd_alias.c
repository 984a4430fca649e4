/* gpubufctl alias NEW OF */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "parse.h"

enum { SLICE, COLUMNS, MODE, REPLACE };

const struct gb_cli_option gb_alias_options[] = {
    {"slice", 's', "A:B", "only rows or elements A to B (not included)", NULL, GB_COMPLETE_NONE},
    {"columns", 'c', "A,B,…", "only these columns of a table, in this order", NULL,
     GB_COMPLETE_NONE},
    {"mode", 'm', "MODE", "who may open (4) and replace (2) it, octal (as the source)",
     "600 640 644 660 666", GB_COMPLETE_NONE},
    {"replace", 'r', NULL, "take the name from an object that has it", NULL, GB_COMPLETE_NONE},
    {0},
};

/* Splits "a,b,c" at its commas; a comma that is part of a name is written "\,". The list is one
   allocation, ended by a NULL. NULL: memory is out. */
static const char **split(const char *text)
{
    size_t length = strlen(text), count = 0;
    const char **names = malloc((length + 2) * sizeof(*names) + length + 1);

    if (!names)
        return NULL;
    char *out = (char *)(names + length + 2);
    names[count++] = out;
    for (const char *p = text; *p; p++) {
        if (*p == '\\' && (p[1] == ',' || p[1] == '\\')) {
            *out++ = *++p;
        } else if (*p == ',') {
            *out++ = '\0';
            names[count++] = out;
        } else {
            *out++ = *p;
        }
    }
    *out = '\0';
    names[count] = NULL;
    return names;
}

/* Turns a slice as typed into rows, which needs the source's length. */
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
    };
    const char *name = args->value[0], *of = args->value[1];
    struct gb_slice_text slice;
    struct gb_error error;
    const char **columns = NULL;

    if ((args->option[SLICE] && gb_parse_slice(args->option[SLICE], &slice, &error) != 0) ||
        (args->option[MODE] && gb_parse_mode(args->option[MODE], &options.mode, &error) != 0))
        return gb_cli_usage(cli, "%s", error.message);
    int status = gb_cli_connect(cli);
    if (status == GB_STATUS_OK && args->option[SLICE])
        status = settle_slice(cli, of, &slice, &options);
    if (status != GB_STATUS_OK)
        return status;
    if (args->option[COLUMNS]) {
        columns = split(args->option[COLUMNS]);
        if (!columns)
            return gb_cli_fail(GB_STATUS_FAILED, "out of memory");
        options.columns = columns;
    }
    int code = gpubuf_alias(cli->client, name, of, &options);
    free(columns);
    return code == 0 ? GB_STATUS_OK : gb_cli_error(cli, code, "cannot name %s after %s", name, of);
}
