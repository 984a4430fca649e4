/* gpubufctl rm, pin, unpin, spill, restore NAME…: one request for each name. */
#include <string.h>

#include "commands.h"
#include "parse.h"

enum { FORCE };
enum { TIER };
enum { WAIT };

const struct gb_cli_option gb_rm_options[] = {
    {"force", 'f', NULL, "do not mind if an object does not exist", NULL, GB_COMPLETE_NONE},
    {0},
};

const struct gb_cli_option gb_spill_options[] = {
    {"tier", 't', "TIER", "host or disk (the first that there is)", "host disk", GB_COMPLETE_NONE},
    {0},
};

const struct gb_cli_option gb_restore_options[] = {
    {"wait", 'w', "TIME", "wait so long for room on the device: 500ms, 10s, 5m", NULL,
     GB_COMPLETE_NONE},
    {0},
};

/* What is to be done to each name. */
struct act {
    const char *verb;
    int (*plain)(struct gpubuf_client *client,
                 const char *name); /* or NULL: one of the following */
    const char *tier;
    int64_t wait_ms;
    bool restores, may_be_missing;
};

static int act_on(struct gpubuf_client *client, const struct act *act, const char *name)
{
    if (act->plain)
        return act->plain(client, name);
    return act->restores ? gpubuf_restore(client, name, act->wait_ms)
                         : gpubuf_spill(client, name, act->tier);
}

/* Does it for all names, also after one failed. The first failure's status. */
static int for_each(struct gb_cli *cli, const struct gb_cli_args *args, const struct act *act)
{
    int worst = gb_cli_connect(cli);

    for (int i = 0; i < args->count && worst != GB_STATUS_NO_DAEMON; i++) {
        int code = act_on(cli->client, act, args->value[i]);
        if (code == 0 || (code == GPUBUF_E_NOT_FOUND && act->may_be_missing))
            continue;
        int status = gb_cli_error(cli, code, "cannot %s %s", act->verb, args->value[i]);
        if (worst == GB_STATUS_OK || status == GB_STATUS_NO_DAEMON)
            worst = status;
    }
    return worst;
}

int gb_cmd_rm(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args,
                    &(struct act){.verb = "remove",
                                  .plain = gpubuf_delete,
                                  .may_be_missing = args->option[FORCE] != NULL});
}

int gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, &(struct act){.verb = "pin", .plain = gpubuf_pin});
}

int gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, &(struct act){.verb = "unpin", .plain = gpubuf_unpin});
}

int gb_cmd_spill(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *tier = args->option[TIER];

    if (tier && strcmp(tier, "host") != 0 && strcmp(tier, "disk") != 0)
        return gb_cli_usage(cli, "--tier is host or disk, not \"%s\"", tier);
    return for_each(cli, args, &(struct act){.verb = "spill", .tier = tier});
}

int gb_cmd_restore(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {.verb = "restore", .restores = true};
    struct gb_error error;

    if (args->option[WAIT] && gb_parse_duration(args->option[WAIT], &act.wait_ms, &error) != 0)
        return gb_cli_usage(cli, "%s", error.message);
    return for_each(cli, args, &act);
}
