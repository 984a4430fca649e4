/* gpubufctl top: what is in memory, again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/gpubufctl/answers/memory.h"
#include "client/gpubufctl/answers/top_view.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

enum { INTERVAL, ONCE, SORT, ROWS };

const struct gb_cli_option gb_top_options[] = {
    {"interval", 'i', "TIME", "refresh interval (1s)", NULL},
    {"once", '1', NULL, "print it once, as text", NULL},
    {"sort", 's', "ORDER", "objects by size, recent or idle (size)", "size recent idle"},
    {"rows", 'n', "N", "with --once: N of each list (20)", NULL},
    {0},
};

#define KEEP 1000      /* objects, the first ones in the order that is shown */
#define SHARE 4        /* listing objects takes at most one part in SHARE of the time */
#define ANSWER_MS 2000 /* without an answer for so long the picture says so */
#define DRAW_MS 500    /* a picture at least so often while objects are listed */

struct top {
    struct gb_cli *cli;
    struct gb_top_view view;
    struct gb_inventory shown;
    bool repeats;
    uint64_t list_ms, drawn_ms; /* when to list the objects next; when it was drawn last */
    char notice[256];
};

static void draw(struct top *top, const struct gb_inventory *memory)
{
    struct gb_writer out;
    struct gb_short clock = gb_clock(time(NULL));

    gb_writer_init(&out, 0);
    if (top->repeats)
        GB_WRITE_LITERAL(&out, "\033[H\033[2J");
    top->view.width = gb_term_width() ? gb_term_width() : 100;
    top->view.rows = top->repeats ? gb_term_rows() : 0;
    top->view.memory = memory;
    top->view.notice = top->notice;
    top->view.clock = top->repeats ? clock.text : "";
    gb_top_draw(&top->view, &out);
    gb_cli_print(&out);
    if (top->repeats && fflush(stdout) != 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot write to the terminal: %m");
    top->drawn_ms = gb_term_clock_ms();
}

/* A failure goes into the next picture; where there is none it ends the program. */
static bool fail(struct top *top, int code, const char *sentence)
{
    if (!top->repeats)
        gb_cli_fail(code == GPUBUF_E_CLOSED ? GB_STATUS_NO_DAEMON : GB_STATUS_FAILED, "%s",
                    sentence);
    (void)snprintf(top->notice, sizeof(top->notice), "%s", sentence);
    if (code == GPUBUF_E_CLOSED) {
        gpubuf_disconnect(top->cli->client);
        top->cli->client = NULL;
    }
    return false;
}

/* Asks the daemon; false if that failed. The answer is to be deleted. */
static bool ask(struct top *top, const char *method, const char *cursor, cJSON **answer)
{
    cJSON *params = cursor ? gb_cjson("{'cursor':%s}", cursor) : NULL;
    char *text = params ? gb_cjson_text(params) : NULL, *result = NULL;
    int code = gpubuf_call(top->cli->client, method, text,
                           top->repeats ? ANSWER_MS : GB_CLI_CALL_MS, &result);

    free(text);
    cJSON_Delete(params);
    if (code < 0)
        return fail(top, code,
                    code == GPUBUF_E_TIMEOUT ? "the daemon does not answer"
                                             : gb_cli_last(top->cli, code).message);
    *answer = gb_cjson_parse(result);
    gpubuf_free(result);
    return *answer || fail(top, GPUBUF_E_PROTOCOL, "the daemon's answer makes no sense");
}

static bool read_figures(struct top *top, struct gb_inventory *memory)
{
    static const struct {
        const char *method;
        bool (*read)(struct gb_inventory *memory, const cJSON *answer);
    } figures[] = {{"stats", gb_inventory_read_stats}, {"leases", gb_inventory_read_leases}};
    bool read = true;

    for (size_t i = 0; read && i < sizeof(figures) / sizeof(figures[0]); i++) {
        cJSON *answer = NULL;
        read = ask(top, figures[i].method, NULL, &answer) &&
               (figures[i].read(memory, answer) ||
                fail(top, GPUBUF_E_PROTOCOL, "the daemon's answer makes no sense"));
        cJSON_Delete(answer);
    }
    return read;
}

/* Lists all objects. Where that takes long, pictures say how far it is. */
static bool list_objects(struct top *top, struct gb_inventory *memory)
{
    uint64_t begun = gb_term_clock_ms();
    cJSON *page = NULL;
    const char *cursor = NULL;

    do {
        cJSON *next = NULL;
        bool read = ask(top, "list", cursor, &next);
        cJSON_Delete(page);
        page = next;
        if (!read || !gb_inventory_read_page(memory, page, top->view.order, KEEP)) {
            cJSON_Delete(page);
            return !read ? false
                         : fail(top, GPUBUF_E_PROTOCOL, "the daemon's answer makes no sense");
        }
        cursor = gb_cjson_string_of(page, "cursor", NULL);
        if (top->repeats && cursor && gb_term_clock_ms() - top->drawn_ms > DRAW_MS) {
            (void)snprintf(top->notice, sizeof(top->notice), "listing %s of %s",
                           gb_count(memory->listed).text, gb_count(memory->object_count).text);
            gb_inventory_sort(memory, top->view.order, KEEP);
            draw(top, memory);
        }
    } while (cursor);
    cJSON_Delete(page);
    gb_inventory_sort(memory, top->view.order, KEEP);
    top->list_ms = begun + (gb_term_clock_ms() - begun) * SHARE;
    return true;
}

/* Reads everything anew; what was listed a moment ago stays as it was. */
static void refresh(struct top *top)
{
    struct gb_inventory now = {.place_count = 0};
    bool lists = gb_term_clock_ms() >= top->list_ms, read = read_figures(top, &now);

    if (read && !lists)
        gb_inventory_move_objects(&now, &top->shown);
    if (read && (!lists || list_objects(top, &now))) {
        gb_inventory_end(&top->shown);
        top->shown = now;
        top->notice[0] = '\0';
    } else {
        gb_inventory_end(&now);
    }
}

static bool find_daemon(struct top *top)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = top->cli->socket,
        .client_name = "gpubufctl",
        .timeout_ms = ANSWER_MS,
        .resume_ms = GPUBUF_NO_RESUME, /* top holds no leases to get back, and goes on drawing */
    };
    int code = top->cli->client ? 0 : gpubuf_connect(&top->cli->client, &options);

    return code == 0 || fail(top, code, gpubuf_errmsg(NULL));
}

static void repeat(struct top *top, int64_t interval_ms)
{
    const struct timespec pause = {interval_ms / 1000, interval_ms % 1000 * 1000000};

    for (;;) {
        if (find_daemon(top))
            refresh(top);
        draw(top, &top->shown);
        nanosleep(&pause, NULL);
    }
}

void gb_cmd_top(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct top top = {.cli = cli, .view = {.color = cli->color, .notice = "", .clock = ""}};
    int64_t interval_ms = args->option[INTERVAL] ? args->number[INTERVAL] : 1000;
    int64_t rows = args->option[ROWS] ? args->number[ROWS] : 20;

    if (interval_ms < 100)
        gb_cli_usage(cli, "--interval is at least 100ms");
    if (args->option[SORT])
        top.view.order = (enum gb_inventory_order)(args->number[SORT] - 1);
    top.view.list_rows = rows < KEEP ? (size_t)rows : KEEP;
    gb_cli_connect(cli); /* without a daemon it ends; one that goes later is waited for */
    if (!args->option[ONCE] && !cli->json && gb_term_rows() > 0) {
        top.repeats = true;
        gpubuf_disconnect(cli->client);
        cli->client = NULL;
        repeat(&top, interval_ms);
    }
    refresh(&top);
    if (cli->json) {
        cJSON *answer = gb_inventory_json(&top.shown, top.view.list_rows);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
    } else {
        draw(&top, &top.shown);
    }
    gb_inventory_end(&top.shown);
}
