/* gpubufctl ping: whether a daemon answers; with --wait, as soon as one does. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"

#define ANSWER_MS 5000 /* how long to wait for an answer without --wait */
#define PAUSE_MS 20    /* between two tries: nobody tells when a daemon begins to listen */

enum { WAIT };

const struct gb_cli_option gb_ping_options[] = {
    {"wait", 'w', "TIME", "how long to wait for a daemon: 500ms, 10s, 5m", NULL},
    {0},
};

static int left_ms(uint64_t end)
{
    uint64_t now = gb_term_clock_ms();
    uint64_t left = end > now ? end - now : 1;

    return left < INT_MAX ? (int)left : INT_MAX;
}

/* Connects and calls `stats`, which every daemon answers at once. 0, or the library's error. */
static int try_once(struct gb_cli *cli, uint64_t end, char **stats)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = cli->socket,
        .client_name = "gpubufctl",
        .timeout_ms = left_ms(end),
        .resume_ms = GPUBUF_NO_RESUME,
    };

    int code = gpubuf_connect(&cli->client, &options);
    return code == 0 ? gpubuf_call(cli->client, "stats", NULL, left_ms(end), stats) : code;
}

/* Whether a failure may go away by itself: while a daemon starts, or while another takes its
   place. */
static bool passes(int code)
{
    return code == GPUBUF_E_CONNECT || code == GPUBUF_E_CLOSED;
}

static void print_answer(const struct gb_cli *cli, const char *text)
{
    cJSON *stats = gb_cjson_parse(text);
    const char *server = gb_cjson_string_of(stats, "server", "a daemon");

    if (cli->json) {
        gb_cjson_print_pattern("{'server':%s}", server);
    } else {
        struct gb_writer clean;
        gb_writer_init(&clean, 0);
        gb_text_clean(&clean, server, strlen(server));
        GB_WRITE_LITERAL(&clean, " answers\n");
        gb_cli_print(&clean);
    }
    cJSON_Delete(stats);
}

void gb_cmd_ping(struct gb_cli *cli, struct gb_cli_args *args)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    int64_t wait_ms = args->number[WAIT];
    char *stats = NULL;
    uint64_t now = gb_term_clock_ms(), give_up = now + (uint64_t)wait_ms;
    uint64_t end = wait_ms > 0 ? give_up : now + ANSWER_MS;

    int code = try_once(cli, end, &stats);
    while (passes(code) && gb_term_clock_ms() < give_up) {
        gpubuf_disconnect(cli->client);
        cli->client = NULL;
        (void)nanosleep(&pause, NULL);
        code = try_once(cli, end, &stats);
    }
    if (code == 0) {
        print_answer(cli, stats);
        gpubuf_free(stats);
        return;
    }
    /* Nobody listens, or the daemon does not answer in time: exit status 3. */
    bool none = passes(code) || code == GPUBUF_E_TIMEOUT || code == GPUBUF_E_PROTOCOL;
    gb_cli_fail(none ? GB_STATUS_NO_DAEMON : GB_STATUS_FAILED, "%s",
                gb_cli_last(cli, code).message);
}
