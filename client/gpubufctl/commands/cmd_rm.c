/* gpubufctl rm, pin, unpin, spill, restore NAME…, expire NAME… TIME: a request for each name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/answers/names.h"
#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"
#include "proto/base/limits.h"

/* Indices into a command's options: those that take versions have VERSION and LABEL first. */
enum { VERSION, LABEL, FORCE, RECURSIVE = FORCE + 1, TIER = FORCE, WAIT = FORCE };

#define WHICH                                                                                      \
    {"version", 'v', "VERSION", "this version instead of the current one", NULL},                  \
    {                                                                                              \
        "label", 'l', "LABEL", "the newest version with this label", NULL                          \
    }

const struct gb_cli_option gb_rm_options[] = {
    WHICH,
    {"force", 'f', NULL, "ignore names that do not exist", NULL},
    {"recursive", 'r', NULL, "also all objects whose names start with NAME/", NULL},
    {0},
};

const struct gb_cli_option gb_expire_options[] = {
    WHICH,
    {0},
};

const struct gb_cli_option gb_spill_options[] = {
    WHICH,
    {"tier", 't', "TIER", "host or disk (the first one below the device)", "host disk"},
    {0},
};

const struct gb_cli_option gb_restore_options[] = {
    WHICH,
    {"wait", 'w', "TIME", "how long to wait for room on the device: 500ms, 5m", NULL},
    {0},
};

/* The action on each name, and how far it has come. */
struct act {
    struct gb_cli *cli;
    const char *verb, *done; /* "remove", "removed" */
    int (*on)(struct gpubuf_client *client, const struct act *act, const char *name);
    uint64_t version;  /* 0: none was given */
    const char *label; /* NULL: none was given */
    const char *tier;
    int64_t wait_ms, ttl_ms;
    bool may_be_missing, recursive;
    cJSON *names; /* the names for which it succeeded */
};

static int do_remove(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_delete_version(client, name, act->version, act->label);
}

static int do_pin(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_pin(client, name);
}

static int do_unpin(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_unpin(client, name);
}

static int do_expire(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_expire_version(client, name, act->version, act->label, act->ttl_ms);
}

static int do_spill(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_spill_version(client, name, act->version, act->label, act->tier);
}

static int do_restore(struct gpubuf_client *client, const struct act *act, const char *name)
{
    return gpubuf_restore_version(client, name, act->version, act->label, act->wait_ms);
}

/* Notes the outcome for one name. With `may_be_missing` a name that does not exist any more is no
   failure. */
static void note_outcome(struct act *act, const char *name, int code, bool may_be_missing)
{
    if (code == 0)
        cJSON_AddItemToArray(act->names, cJSON_CreateString(name));
    if (code == 0 || (code == GPUBUF_E_NOT_FOUND && may_be_missing) ||
        (code == GPUBUF_E_STALE && act->version && may_be_missing))
        return;
    struct gb_error error = gb_cli_last(act->cli, code);
    gb_cli_note(act->cli, &error, "cannot %s %s", act->verb, name);
}

/* Acts on all objects whose names match the pattern, or start with the text. False: there are
   none. */
static bool act_on_found(struct act *act, const char *text, bool pattern)
{
    cJSON *objects = gb_found_names(act->cli, text, pattern, false);
    bool any = objects->child != NULL;
    int before = cJSON_GetArraySize(act->names);

    GB_CJSON_EACH(object, objects) {
        const char *name = gb_cjson_string_of(object, "name", "");
        if (act->cli->worst != GB_STATUS_NO_DAEMON)
            note_outcome(act, name, act->on(act->cli->client, act, name), true);
    }
    cJSON_Delete(objects);
    if (pattern && any && act->on == do_remove && !act->cli->json)
        printf("removed: %d that match %s\n", cJSON_GetArraySize(act->names) - before, text);
    return any;
}

/* Acts on one name or on the objects that match it. A name that an object has is not taken for a
   pattern, and with --version or --label nothing is. */
static void act_on_name(struct act *act, const char *name)
{
    int code = act->on(act->cli->client, act, name);

    if (act->version || act->label || (code != GPUBUF_E_NOT_FOUND && code != GPUBUF_E_INVALID) ||
        !gb_names_is_pattern(name)) {
        note_outcome(act, name, code, act->may_be_missing);
    } else if (!act_on_found(act, name, true) && !act->may_be_missing) {
        char *text = gb_text(GB_NAMES_NONE, name);
        gb_cli_say("failed", text);
        free(text);
        act->cli->worst = GB_STATUS_FAILED;
    }
}

/* rm -r: "d" and "d/" both stand for the object d and all objects whose names start with "d/". */
static void act_on_tree(struct act *act, const char *name)
{
    char text[512];
    size_t length = strlen(name);

    while (length > 0 && name[length - 1] == '/')
        length--;
    (void)snprintf(text, sizeof(text), "%.*s", (int)length, name);
    int code = act->on(act->cli->client, act, text);
    bool any = false;
    if ((code == 0 || code == GPUBUF_E_NOT_FOUND) && length < (size_t)GB_LIMIT(name_bytes)) {
        (void)snprintf(text, sizeof(text), "%.*s/", (int)length, name);
        any = act_on_found(act, text, false);
    }
    note_outcome(act, name, code, any || act->may_be_missing);
}

/* Reads --version and --label. */
static void read_which(struct gb_cli *cli, const struct gb_cli_args *args, struct act *act)
{
    act->version = (uint64_t)args->number[VERSION];
    act->label = args->option[LABEL];
    if (act->version && act->label)
        gb_cli_usage(cli, "--version and --label exclude each other");
    if (act->recursive && (act->version || act->label))
        gb_cli_usage(cli, "--recursive takes names with all their versions");
}

/* Acts on every name, also after one failed. */
static void for_each(struct gb_cli *cli, const struct gb_cli_args *args, struct act *act)
{
    for (int i = 0; i < args->count && act->recursive; i++)
        if (strspn(args->value[i], "/") == strlen(args->value[i]))
            gb_cli_usage(cli, "--recursive needs a name; '*' is all objects");
    act->cli = cli;
    act->names = cJSON_CreateArray();
    gb_cli_connect(cli);
    for (int i = 0; i < args->count && cli->worst != GB_STATUS_NO_DAEMON; i++) {
        if (act->recursive)
            act_on_tree(act, args->value[i]);
        else
            act_on_name(act, args->value[i]);
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddItemToObject(answer, act->done, act->names);
    if (cli->json && cli->worst != GB_STATUS_NO_DAEMON)
        gb_cjson_print(answer, true);
    cJSON_Delete(answer);
}

void gb_cmd_rm(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {.verb = "remove",
                      .done = "removed",
                      .on = do_remove,
                      .recursive = args->option[RECURSIVE] != NULL,
                      .may_be_missing = args->option[FORCE] != NULL};

    read_which(cli, args, &act);
    for_each(cli, args, &act);
}

void gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args)
{
    for_each(cli, args, &(struct act){.verb = "pin", .done = "pinned", .on = do_pin});
}

void gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args)
{
    for_each(cli, args, &(struct act){.verb = "unpin", .done = "unpinned", .on = do_unpin});
}

void gb_cmd_spill(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {
        .verb = "spill", .done = "spilled", .on = do_spill, .tier = args->option[TIER]};

    read_which(cli, args, &act);
    for_each(cli, args, &act);
}

void gb_cmd_restore(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {
        .verb = "restore", .done = "restored", .on = do_restore, .wait_ms = args->number[WAIT]};

    read_which(cli, args, &act);
    for_each(cli, args, &act);
}

void gb_cmd_expire(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct act act = {.verb = "set the time of", .done = "expiring", .on = do_expire};
    struct gb_cli_args names = {.count = args->count - 1, .value = args->value};
    const char *time = args->value[names.count];
    struct gb_error error;

    read_which(cli, args, &act);
    if (strcmp(time, "never") != 0) {
        if (gb_parse_duration(time, &act.ttl_ms, &error) != 0)
            gb_cli_usage(cli, "%s; or never", error.message);
        if (act.ttl_ms == 0)
            gb_cli_usage(cli, "a time of 0 is not allowed: rm removes at once, never keeps");
    }
    for_each(cli, &names, &act);
}
