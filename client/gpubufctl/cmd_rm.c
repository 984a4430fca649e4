/* gpubufctl rm, pin, unpin, spill, restore NAME…, expire NAME… TIME: a request for each name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "json_print.h"
#include "names.h"
#include "parse.h"
#include "proto/limits.h"

enum { FORCE, RECURSIVE };
enum { TIER };
enum { WAIT };

const struct gb_cli_option gb_rm_options[] = {
    {"force", 'f', NULL, "do not mind if an object does not exist", NULL, GB_COMPLETE_NONE},
    {"recursive", 'r', NULL, "also all objects whose names start with NAME/", NULL,
     GB_COMPLETE_NONE},
    {0},
};

const struct gb_cli_option gb_spill_options[] = {
    {"tier", 't', "TIER", "host or disk (the first that there is)", "host disk", GB_COMPLETE_NONE},
    {0},
};

const struct gb_cli_option gb_restore_options[] = {
    {"wait", 'w', "TIME", "how long to wait for room on the device: 500ms, 5m", NULL,
     GB_COMPLETE_NONE},
    {0},
};

/* The action on each name, and how far it has come. */
struct act {
    struct gb_cli *cli;
    const char *verb, *done; /* "remove", "removed" */
    int (*plain)(struct gpubuf_client *client,
                 const char *name); /* or NULL: one of the following */
    const char *tier;
    int64_t wait_ms, ttl_ms;
    bool restores, expires, may_be_missing, recursive;
    cJSON *names; /* those that it was done to */
    int worst;    /* the first failure's status */
};

static int act_on(struct gpubuf_client *client, const struct act *act, const char *name)
{
    if (act->plain)
        return act->plain(client, name);
    if (act->expires)
        return gpubuf_expire(client, name, act->ttl_ms);
    return act->restores ? gpubuf_restore(client, name, act->wait_ms)
                         : gpubuf_spill(client, name, act->tier);
}

/* Takes what became of a name; one that is gone is no failure where it was only found by a list. */
static void settle(struct act *act, const char *name, int code, bool may_be_missing)
{
    if (code == 0)
        cJSON_AddItemToArray(act->names, cJSON_CreateString(name));
    if (code == 0 || (code == GPUBUF_E_NOT_FOUND && may_be_missing))
        return;
    int status = gb_cli_error(act->cli, code, "cannot %s %s", act->verb, name);
    if (act->worst == GB_STATUS_OK || status == GB_STATUS_NO_DAEMON)
        act->worst = status;
}

/* Does it to all that match, or start so. False: there are none, which is not told yet. */
static bool act_on_found(struct act *act, const char *text, bool pattern)
{
    cJSON *objects = NULL;
    int status = gb_found_names(act->cli, text, pattern, &objects);

    if (status != GB_STATUS_OK)
        act->worst = status;
    bool any = status != GB_STATUS_OK || objects->child;
    GB_CJSON_EACH(object, objects) {
        const char *name = gb_cjson_string_of(object, "name", "");
        if (act->worst != GB_STATUS_NO_DAEMON)
            settle(act, name, act_on(act->cli->client, act, name), true);
    }
    cJSON_Delete(objects);
    return any;
}

/* An object's own name is no pattern. */
static void act_on_name(struct act *act, const char *name)
{
    int code = act_on(act->cli->client, act, name);

    if ((code != GPUBUF_E_NOT_FOUND && code != GPUBUF_E_INVALID) || !gb_names_is_pattern(name))
        settle(act, name, code, act->may_be_missing);
    else if (!act_on_found(act, name, true) && !act->may_be_missing)
        act->worst = gb_names_none(name);
}

/* "d" and "d/" are the object d and all below it. */
static void act_on_tree(struct act *act, const char *name)
{
    char text[512];
    size_t length = strlen(name);

    while (length > 0 && name[length - 1] == '/')
        length--;
    (void)snprintf(text, sizeof(text), "%.*s", (int)length, name);
    int code = act_on(act->cli->client, act, text);
    bool any = false;
    if ((code == 0 || code == GPUBUF_E_NOT_FOUND) && length < (size_t)GB_LIMIT(name_bytes)) {
        (void)snprintf(text, sizeof(text), "%.*s/", (int)length, name);
        any = act_on_found(act, text, false);
    }
    settle(act, name, code, any || act->may_be_missing);
}

/* Does it for all names, also after one failed. The first failure's status. */
static int for_each(struct gb_cli *cli, const struct gb_cli_args *args, struct act *act)
{
    for (int i = 0; i < args->count && act->recursive; i++)
        if (strspn(args->value[i], "/") == strlen(args->value[i]))
            return gb_cli_usage(cli, "--recursive needs a name; '*' is all objects");
    act->cli = cli;
    act->names = cJSON_CreateArray();
    act->worst = gb_cli_connect(cli);
    for (int i = 0; i < args->count && act->worst != GB_STATUS_NO_DAEMON; i++) {
        if (act->recursive)
            act_on_tree(act, args->value[i]);
        else
            act_on_name(act, args->value[i]);
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddItemToObject(answer, act->done, act->names);
    if (cli->json && act->worst != GB_STATUS_NO_DAEMON)
        gb_cjson_print(answer, true);
    cJSON_Delete(answer);
    return act->worst;
}

int gb_cmd_rm(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args,
                    &(struct act){.verb = "remove",
                                  .done = "removed",
                                  .recursive = args->option[RECURSIVE] != NULL,
                                  .plain = gpubuf_delete,
                                  .may_be_missing = args->option[FORCE] != NULL});
}

int gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args, &(struct act){.verb = "pin", .done = "pinned", .plain = gpubuf_pin});
}

int gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args)
{
    return for_each(cli, args,
                    &(struct act){.verb = "unpin", .done = "unpinned", .plain = gpubuf_unpin});
}

int gb_cmd_spill(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *tier = args->option[TIER];

    if (tier && strcmp(tier, "host") != 0 && strcmp(tier, "disk") != 0)
        return gb_cli_usage(cli, "--tier is host or disk, not \"%s\"", tier);
    return for_each(cli, args, &(struct act){.verb = "spill", .done = "spilled", .tier = tier});
}

int gb_cmd_restore(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {.verb = "restore", .done = "restored", .restores = true};
    struct gb_error error;

    if (args->option[WAIT] && gb_parse_duration(args->option[WAIT], &act.wait_ms, &error) != 0)
        return gb_cli_usage(cli, "%s", error.message);
    return for_each(cli, args, &act);
}

int gb_cmd_expire(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {.verb = "set the time of", .done = "expiring", .expires = true};
    struct gb_cli_args names = {.count = args->count - 1, .value = args->value};
    const char *time = args->value[names.count];
    struct gb_error error;

    if (strcmp(time, "never") != 0) {
        if (gb_parse_duration(time, &act.ttl_ms, &error) != 0)
            return gb_cli_usage(cli, "%s; or never", error.message);
        if (act.ttl_ms == 0)
            return gb_cli_usage(cli, "a time of 0 is no time: rm removes at once, never keeps");
    }
    return for_each(cli, &names, &act);
}
