/* gpubufctl rm NAME…, pin NAME…, unpin NAME…: one request for each name. */
#include "commands.h"

enum { FORCE };

const struct gb_cli_option gb_rm_options[] = {
    {"force", 'f', NULL, "do not mind if an object does not exist", NULL, GB_COMPLETE_NONE},
    {0},
};

/* Does it for all names, also after one failed. The first failure's status. */
static int for_each(struct gb_cli *cli, const struct gb_cli_args *args, const char *verb,
                    int (*act)(struct gpubuf_client *, const char *), bool may_be_missing)
{
    int worst = gb_cli_connect(cli);

    for (int i = 0; i < args->count && worst != GB_STATUS_NO_DAEMON; i++) {
        int code = act(cli->client, args->value[i]);
        if (code == 0 || (code == GPUBUF_E_NOT_FOUND && may_be_missing))
            continue;
        int status = gb_cli_error(cli, code, "cannot %s %s", verb, args->value[i]);
        if (worst == GB_STATUS_OK || status == GB_STATUS_NO_DAEMON)
            worst = status;
    }
    return worst;
}

int gb_cmd_rm(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, "remove", gpubuf_delete, args->option[FORCE] != NULL);
}

int gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, "pin", gpubuf_pin, false);
}

int gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, "unpin", gpubuf_unpin, false);
}
