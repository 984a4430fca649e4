/* gpubufctl events [PREFIX]: what the daemon publishes by NNG, one line an event, until
   interrupted. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "format.h"
#include "json_print.h"
#include "term.h"

enum { URL, COUNT, FOR };

const struct gb_cli_option gb_events_options[] = {
    {"url", 'u', "URL", "where the gateway publishes (ipc:///run/gpubufd-gateway/events.sock)",
     NULL},
    {"count", 'n', "N", "end after N events", NULL},
    {"for", 't', "TIME", "end after this time", NULL},
    {0},
};

#define BUFFERED 8192 /* messages that NNG keeps for us; more are dropped */

struct follow {
    struct gb_cli *cli;
    const char *prefix;
    uint64_t left;
    uint64_t last; /* the number of the last event */
    bool told;     /* `last` is set: an event came, or figures, which have its number too */
};

/* A daemon that is started anew numbers its events from the time of its start, in microseconds. So
   a gap of a second's worth or more means a daemon that was started anew. */
#define ANEW 1000000

/* Tells of events that were lost before this message, whose last event has the number `seq`.
   `count`: its events, 0 for figures, which have the number of the last event. Numbers go up by one
   and we are subscribed to all events, so a gap is a loss, unless another daemon has begun. */
static void tell_lost(struct follow *follow, uint64_t seq, uint64_t count)
{
    uint64_t next = follow->last + count;

    if (follow->told && (seq < follow->last || seq > next + ANEW))
        (void)fprintf(stderr, "gpubufctl: the daemon was started anew; events may be missing\n");
    else if (follow->told && seq > next)
        (void)fprintf(stderr, "gpubufctl: %" PRIu64 " events were lost\n", seq - next);
    follow->last = seq;
    follow->told = true;
}

static void print_text(const struct follow *follow, const char *kind, const char *name,
                       const cJSON *event)
{
    const cJSON *object = gb_cjson_member(event, "object");
    int64_t bytes = gb_cjson_int_of(object, "bytes", -1);
    bool color = follow->cli->color;
    struct gb_writer clean;

    gb_writer_init(&clean, 0);
    gb_text_clean(&clean, *name ? name : "(private)", strlen(*name ? name : "(private)"));
    printf("%s%s %8" PRIu64 "%s  %-9s  %s  %s%s%s\n", gb_style_on(color, GB_STYLE_DIM),
           gb_clock(gb_cjson_int_of(event, "time_ms", 0) / 1000).text, follow->last,
           gb_style_off(color, GB_STYLE_DIM), kind, gb_writer_text(&clean),
           gb_style_on(color, GB_STYLE_DIM), bytes < 0 ? "" : gb_size((uint64_t)bytes).text,
           gb_style_off(color, GB_STYLE_DIM));
    gb_writer_end(&clean);
}

/* Takes a message: `KIND NAME`, a newline, JSON. */
static void take(struct follow *follow, const char *text, size_t length)
{
    const char *newline = memchr(text, '\n', length);
    const char *space = newline ? memchr(text, ' ', (size_t)(newline - text)) : NULL;
    cJSON *event = NULL;
    const cJSON *seq;
    char kind[16], name[256];

    if (!space || (size_t)(space - text) >= sizeof(kind) ||
        (size_t)(newline - space) > sizeof(name))
        return;
    (void)snprintf(kind, sizeof(kind), "%.*s", (int)(space - text), text);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(newline - space - 1), space + 1);
    event = cJSON_ParseWithLength(newline + 1, length - (size_t)(newline + 1 - text));
    seq = gb_cjson_member(event, "seq");
    if (cJSON_IsNumber(seq)) {
        const cJSON *hidden = gb_cjson_member(event, "count");
        bool stats = strcmp(kind, "stats") == 0;
        uint64_t count = cJSON_IsNumber(hidden) ? (uint64_t)hidden->valuedouble : 1;

        tell_lost(follow, (uint64_t)seq->valuedouble, stats ? 0 : count);
        if (!stats && strncmp(name, follow->prefix, strlen(follow->prefix)) == 0) {
            if (follow->cli->json)
                printf("%.*s\n", (int)(length - (size_t)(newline + 1 - text)), newline + 1);
            else
                print_text(follow, kind, name, event);
            follow->left--;
        }
    }
    cJSON_Delete(event);
}

static void run(struct follow *follow, nng_socket subscriber, uint64_t deadline)
{
    while (follow->left > 0 && fflush(stdout) == 0) { /* main tells why it did not */
        uint64_t now = gb_term_clock_ms();
        nng_msg *message;

        if (deadline && now >= deadline)
            return;
        nng_socket_set_ms(subscriber, NNG_OPT_RECVTIMEO,
                          deadline && deadline - now < 1000 ? (nng_duration)(deadline - now)
                                                            : 1000);
        int r = nng_recvmsg(subscriber, &message, 0);
        if (r == NNG_ETIMEDOUT)
            continue;
        if (r != 0)
            gb_cli_fail(GB_STATUS_FAILED, "cannot receive events: %s", nng_strerror(r));
        take(follow, nng_msg_body(message), nng_msg_len(message));
        nng_msg_free(message);
    }
}

void gb_cmd_events(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *url =
        args->option[URL] ? args->option[URL] : "ipc:///run/gpubufd-gateway/events.sock";
    struct follow follow = {
        .cli = cli,
        .prefix = args->count ? args->value[0] : "",
        .left = args->option[COUNT] ? (uint64_t)args->number[COUNT] : UINT64_MAX,
    };
    nng_socket subscriber;
    int r = nng_sub0_open(&subscriber);

    if (r != 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot subscribe: %s", nng_strerror(r));
    nng_socket_set(subscriber, NNG_OPT_SUB_SUBSCRIBE, "", 0);
    nng_socket_set_int(subscriber, NNG_OPT_RECVBUF, BUFFERED);
    r = nng_dial(subscriber, url, NULL, 0);
    if (r != 0)
        gb_cli_fail(GB_STATUS_NO_DAEMON,
                    "nothing is published at %s: %s; gpubufd-gateway publishes with --events", url,
                    nng_strerror(r));
    run(&follow, subscriber,
        args->option[FOR] ? gb_term_clock_ms() + (uint64_t)args->number[FOR] : 0);
    nng_close(subscriber);
}
