/* gpubufctl watch [PREFIX]: one line an event, until interrupted. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"

enum { COUNT, NEW };

const struct gb_cli_option gb_watch_options[] = {
    {"count", 'n', "N", "exit after N events", NULL},
    {"new", 'N', NULL, "omit existing objects", NULL},
    {0},
};

struct watch {
    struct gb_cli *cli;
    uint64_t left; /* events still to be printed before it ends */
    bool only_new; /* print nothing before the event `synced` */
    bool synced;
};

static enum gb_style style_of(const char *kind)
{
    if (strcmp(kind, "sealed") == 0 || strcmp(kind, "restored") == 0)
        return GB_STYLE_GREEN;
    if (strcmp(kind, "deleted") == 0 || strcmp(kind, "withdrawn") == 0)
        return GB_STYLE_RED;
    return strcmp(kind, "synced") == 0 ? GB_STYLE_DIM : GB_STYLE_YELLOW;
}

static void print_json(const char *kind, const struct gpubuf_info *info)
{
    cJSON *event = gb_cjson("{'kind':%s}", kind);

    if (info) {
        char mode[16];
        (void)snprintf(mode, sizeof(mode), "%04o", info->mode);
        cJSON_AddItemToObject(
            event, "object",
            gb_cjson("{'name':%s,'version':%" PRIu64 ",'state':%s,'tier':%s,'device':%s,"
                     "'bytes':%" PRIu64 ",'mode':%s,'uid':%u,'gid':%u,'created_ms':%" PRId64
                     ",'leases':%" PRIu64 ",'pinned':%i,'ttl_ms':%" PRId64 "}",
                     info->name, info->version, info->state, info->tier, info->device, info->bytes,
                     mode, info->uid, info->gid, info->created_ms, info->leases, info->pinned,
                     info->ttl_ms));
    }
    gb_cjson_print(event, false);
    cJSON_Delete(event);
}

static void print_text(const struct watch *watch, const char *kind, const struct gpubuf_info *info)
{
    bool color = watch->cli->color;
    enum gb_style style = style_of(kind);
    struct gb_writer name;

    gb_writer_init(&name, 0);
    if (info) {
        gb_text_clean(&name, info->name, strlen(info->name));
        gb_write_format(&name, "  %sversion %" PRIu64 ", %s%s", gb_style_on(color, GB_STYLE_DIM),
                        info->version, gb_size(info->bytes).text,
                        gb_style_off(color, GB_STYLE_DIM));
    }
    printf("%s%s%s  %s%-9s%s  %s\n", gb_style_on(color, GB_STYLE_DIM), gb_clock(time(NULL)).text,
           gb_style_off(color, GB_STYLE_DIM), gb_style_on(color, style), kind,
           gb_style_off(color, style), gb_writer_text(&name));
    gb_writer_end(&name);
}

static void on_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
    struct watch *watch = arg;
    bool synced = strcmp(kind, "synced") == 0;

    if (watch->left == 0)
        return;
    if (synced)
        watch->synced = true;
    if (watch->only_new && (!watch->synced || synced))
        return;
    if (watch->cli->json)
        print_json(kind, info);
    else
        print_text(watch, kind, info);
    watch->left--;
}

/* Waits for messages; also ends when whoever reads our output is gone. `deadline` 0: none. */
static void follow(const struct watch *watch)
{
    struct gpubuf_client *client = watch->cli->client;
    struct stat status;
    bool pipe = fstat(STDOUT_FILENO, &status) == 0 &&
                (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));

    while (watch->left > 0 && fflush(stdout) == 0) { /* main tells why it did not */
        struct pollfd polled[2] = {
            {.fd = gpubuf_fd(client), .events = gpubuf_events(client)},
            {.fd = pipe ? STDOUT_FILENO : -1},
        };
        int ready = poll(polled, 2, -1);
        if (ready < 0 && errno != EINTR)
            gb_cli_fail(GB_STATUS_FAILED, "cannot wait for events: %m");
        if (ready > 0 && polled[1].revents)
            return;
        int code = gpubuf_dispatch(client);
        if (fflush(stdout) == 0)
            gb_cli_check(watch->cli, code, "watching ended");
    }
}

void gb_cmd_watch(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct watch watch = {
        .cli = cli,
        .left = args->option[COUNT] ? (uint64_t)args->number[COUNT] : UINT64_MAX,
        .only_new = args->option[NEW] != NULL,
    };
    uint64_t id;

    gb_cli_connect(cli);
    gb_cli_check(
        cli, gpubuf_watch(cli->client, args->count ? args->value[0] : NULL, on_event, &watch, &id),
        "cannot watch");
    follow(&watch);
}
