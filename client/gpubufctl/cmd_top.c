/* gpubufctl top: what is in memory, again and again. */
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "format.h"
#include "json_print.h"
#include "memory.h"
#include "names.h"
#include "screen.h"
#include "top_view.h"

enum { INTERVAL, ONCE, SORT, ROWS };

const struct gb_cli_option gb_top_options[] = {
    {"interval", 'i', "TIME", "refresh so often (1s)", NULL},
    {"once", '1', NULL, "print it once, as text", NULL},
    {"sort", 's', "ORDER", "objects by size, recent or idle (size)", "size recent idle"},
    {"rows", 'n', "N", "with --once: N of each list (20)", NULL},
    {0},
};

/* How many objects are kept at most: the first ones in the order that is shown. */
#define KEEP 1000
/* Asking takes at most one part in SHARE of the time. */
#define SHARE 4
#define RETRY_MS 500
#define CONNECT_MS 100
#define SILENT_MS 2000 /* after this time without an answer the screen says so */

struct top {
    struct gb_cli *cli;
    struct gb_top_view view;
    int64_t interval_ms;
    struct gb_inventory shown, coming; /* coming: what the answers so far say */
    unsigned waiting;                  /* answers that are still to come; 0: nothing is asked for */
    uint64_t begun_ms, next_ms;
    int status; /* of a request that failed since all were answered last; 0: none did */
    bool malformed;
    char notice[256];
    char filter[64];
    bool stop;
};

/* ---- asking ---- */

static void answered(struct top *top, int status)
{
    top->waiting--;
    if (status < 0 && top->status == 0) {
        top->status = status;
        (void)snprintf(top->notice, sizeof(top->notice), "%.255s",
                       gb_cli_last(top->cli, status).message);
    }
}

/* Takes in an answer with one of the gb_inventory functions. */
static void take(struct top *top, int status, const char *result,
                 bool (*read)(struct gb_inventory *memory, const cJSON *answer))
{
    cJSON *answer = status == 0 ? gb_cjson_parse(result) : NULL;

    if (status == 0 && (!answer || !read(&top->coming, answer)))
        top->malformed = true;
    cJSON_Delete(answer);
    answered(top, status);
}

static void on_stats(struct gpubuf_client *client, int status, const char *result, size_t length,
                     void *arg)
{
    take(arg, status, result, gb_inventory_read_stats);
}

static void on_leases(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    take(arg, status, result, gb_inventory_read_leases);
}

static void on_page(struct gpubuf_client *client, int status, const char *result, size_t length,
                    void *arg);

static int ask_page(struct top *top, const char *cursor)
{
    cJSON *params = cJSON_CreateObject();

    if (cursor)
        cJSON_AddStringToObject(params, "cursor", cursor);
    char *text = gb_cjson_text(params);
    cJSON_Delete(params);
    int code = gpubuf_call_async(top->cli->client, "list", text, on_page, top, NULL);
    free(text);
    top->waiting += code == 0;
    return code;
}

/* Removes the objects that the filter leaves out from a page. */
static void apply_filter(const struct top *top, cJSON *page)
{
    cJSON *objects = gb_cjson_member(page, "objects");
    bool pattern = gb_names_is_pattern(top->filter);

    for (cJSON *object = objects ? objects->child : NULL, *next; object; object = next) {
        const char *name = gb_cjson_string_of(object, "name", "");
        next = object->next;
        if (pattern ? fnmatch(top->filter, name, 0) != 0 : !strstr(name, top->filter))
            cJSON_Delete(cJSON_DetachItemViaPointer(objects, object));
    }
}

static void on_page(struct gpubuf_client *client, int status, const char *result, size_t length,
                    void *arg)
{
    struct top *top = arg;
    cJSON *page = status == 0 ? gb_cjson_parse(result) : NULL;

    if (page && top->filter[0])
        apply_filter(top, page);
    if (status == 0 &&
        (!page || !gb_inventory_read_page(&top->coming, page, top->view.order, KEEP)))
        top->malformed = true;
    const char *cursor = gb_cjson_string_of(page, "cursor", NULL);
    if (cursor && !top->malformed)
        status = ask_page(top, cursor);
    cJSON_Delete(page);
    answered(top, status);
}

static int ask(struct top *top)
{
    struct gpubuf_client *client = top->cli->client;

    gb_inventory_end(&top->coming);
    top->coming.reverse = top->view.reverse;
    top->status = 0;
    top->malformed = false;
    top->begun_ms = gb_term_clock_ms();
    int code = gpubuf_call_async(client, "stats", NULL, on_stats, top, NULL);
    if (code < 0)
        return code;
    top->waiting++;
    code = gpubuf_call_async(client, "leases", NULL, on_leases, top, NULL);
    if (code < 0)
        return code;
    top->waiting++;
    return ask_page(top, NULL);
}

/* All has been answered: shows it and sets when to ask again. */
static void finish(struct top *top)
{
    uint64_t now = gb_term_clock_ms(), took = now - top->begun_ms;

    top->next_ms = top->begun_ms + (uint64_t)top->interval_ms;
    if (top->next_ms < now + took * (SHARE - 1))
        top->next_ms = now + took * (SHARE - 1);
    if (top->malformed)
        (void)snprintf(top->notice, sizeof(top->notice), "the daemon's answer makes no sense");
    if (top->status < 0 || top->malformed)
        return;
    gb_inventory_sort(&top->coming, top->view.order, KEEP);
    gb_inventory_end(&top->shown);
    top->shown = top->coming;
    top->coming = (struct gb_inventory){.place_count = 0};
    top->notice[0] = '\0';
}

/* ---- once ---- */

static void fetch_once(struct top *top)
{
    int code = ask(top);

    while (code >= 0 && top->waiting > 0) {
        struct pollfd fd = {.fd = gpubuf_fd(top->cli->client),
                            .events = gpubuf_events(top->cli->client)};

        if (poll(&fd, 1, GB_CLI_CALL_MS) == 0)
            gb_cli_fail(GB_STATUS_TIMEOUT, "the daemon does not answer");
        code = gpubuf_dispatch(top->cli->client);
    }
    gb_cli_check(top->cli, code, "top");
    if (top->status == 0)
        finish(top);
    if (top->notice[0])
        gb_cli_fail(top->status == GPUBUF_E_CLOSED ? GB_STATUS_NO_DAEMON : GB_STATUS_FAILED, "%s",
                    top->notice);
}

static void run_once(struct top *top, size_t rows)
{
    gb_cli_connect(top->cli);
    fetch_once(top);
    if (top->cli->json) {
        cJSON *answer = gb_inventory_json(&top->shown, rows);
        gb_cjson_print(answer, true);
        cJSON_Delete(answer);
        return;
    }
    struct gb_writer out;
    gb_writer_init(&out, 0);
    top->view.width = gb_term_width() ? gb_term_width() : 100;
    top->view.list_rows = rows;
    gb_top_draw(&top->view, &out);
    gb_cli_print(&out);
}

/* ---- on the screen ---- */

static void draw(struct top *top)
{
    struct gb_writer out;
    struct gb_short clock = gb_clock(time(NULL)), silent;
    uint64_t waited = top->waiting ? gb_term_clock_ms() - top->begun_ms : 0;

    gb_writer_init(&out, 0);
    gb_screen_size(&top->view.width, &top->view.rows);
    top->view.clock = clock.text;
    top->view.notice = top->notice;
    if (!top->notice[0] && waited > SILENT_MS) {
        (void)snprintf(silent.text, sizeof(silent.text), "no answer for %d s",
                       (int)(waited / 1000));
        top->view.notice = silent.text;
    }
    gb_top_draw(&top->view, &out);
    gb_screen_draw(gb_writer_text(&out), out.length);
    gb_writer_end(&out);
    top->view.notice = "";
    top->view.clock = "";
}

static void scroll(struct top *top, size_t rows, bool down)
{
    size_t *first = &top->view.first;

    if (down)
        /* gb_top_draw cuts it to what there is. */
        *first = rows > SIZE_MAX - *first ? SIZE_MAX : *first + rows;
    else
        *first = *first > rows ? *first - rows : 0;
}

/* After a change of list, order or filter: asks anew at once. */
static void change(struct top *top)
{
    top->view.first = 0;
    top->next_ms = 0;
    top->shown.reverse = top->view.reverse;
    gb_inventory_sort(&top->shown, top->view.order, KEEP);
}

/* Drops the last character, of one byte or several. */
static void shorten(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && ((unsigned char)text[--length] & 0xc0) == 0x80)
        ;
    text[length] = '\0';
}

static void type_filter(struct top *top, int key)
{
    size_t length = strlen(top->filter);

    if (key == GB_KEY_GONE)
        top->stop = true;
    if (key == GB_KEY_GONE || key == '\r' || key == '\n')
        top->view.typing = false;
    else if (key == 0x15) /* ^U */
        top->filter[0] = '\0';
    else if (key == 0x7f || key == '\b')
        shorten(top->filter);
    else if (key >= ' ' && key < GB_KEY_UP && length + 1 < sizeof(top->filter)) {
        top->filter[length] = (char)key; /* a character of several bytes comes byte by byte */
        top->filter[length + 1] = '\0';
    }
    change(top);
}

static void handle_key(struct top *top, int key)
{
    size_t page = top->view.list_rows > 1 ? top->view.list_rows - 1 : 1;

    if (top->view.typing) {
        type_filter(top, key);
        return;
    }
    if (top->view.help && key != 'q' && key != 'Q' && key != GB_KEY_GONE) {
        top->view.help = false;
        return;
    }
    switch (key) {
    case 'h':
    case 'H':
    case '?':
        top->view.help = true;
        break;
    case '/':
        top->view.list = GB_TOP_OBJECTS;
        top->view.typing = true;
        break;
    case 'r':
    case 'R':
        top->view.reverse = !top->view.reverse;
        change(top);
        break;
    case 'q':
    case 'Q':
    case GB_KEY_GONE:
        top->stop = true;
        break;
    case '\t':
    case GB_KEY_RIGHT:
        top->view.list = (top->view.list + 1) % GB_TOP_LISTS;
        change(top);
        break;
    case GB_KEY_LEFT:
    case GB_KEY_BACK_TAB:
        top->view.list = (top->view.list + GB_TOP_LISTS - 1) % GB_TOP_LISTS;
        change(top);
        break;
    case 's':
    case 'S':
        if (top->view.list == GB_TOP_OBJECTS) {
            top->view.order = (top->view.order + 1) % GB_MEMORY_ORDERS;
            change(top);
        }
        break;
    case 'k':
    case GB_KEY_UP:
        scroll(top, 1, false);
        break;
    case 'j':
    case GB_KEY_DOWN:
        scroll(top, 1, true);
        break;
    case GB_KEY_PAGE_UP:
    case GB_KEY_PAGE_DOWN:
    case ' ':
        scroll(top, page, key != GB_KEY_PAGE_UP);
        break;
    case GB_KEY_HOME:
    case GB_KEY_END:
        scroll(top, SIZE_MAX, key == GB_KEY_END);
        break;
    default:
        break;
    }
}

/* The connection is lost for good: ends it, and looks for another daemon later. */
static void lose_daemon(struct top *top)
{
    if (!top->notice[0])
        (void)snprintf(top->notice, sizeof(top->notice), "the connection to the daemon is lost");
    gpubuf_disconnect(top->cli->client); /* ends the requests that are still waited for */
    top->cli->client = NULL;
    top->waiting = 0;
    top->next_ms = gb_term_clock_ms() + RETRY_MS;
}

static void find_daemon(struct top *top)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = top->cli->socket,
        .client_name = "gpubufctl",
        .timeout_ms = CONNECT_MS,
        .resume_ms = GPUBUF_NO_RESUME, /* top holds no leases to get back, and goes on drawing */
    };

    if (gpubuf_connect(&top->cli->client, &options) < 0)
        (void)snprintf(top->notice, sizeof(top->notice), "%s", gpubuf_errmsg(NULL));
    top->next_ms = top->cli->client ? 0 : gb_term_clock_ms() + RETRY_MS;
}

/* If it is time to, asks the daemon, or looks for one. */
static void tend(struct top *top)
{
    if (top->waiting > 0 || gb_term_clock_ms() < top->next_ms)
        return;
    if (!top->cli->client)
        find_daemon(top);
    if (top->cli->client && ask(top) < 0)
        lose_daemon(top);
}

/* Waits for a key, an answer, a signal, or the next second. True if something has to be drawn. */
static bool wait_for_something(struct top *top)
{
    uint64_t now = gb_term_clock_ms();
    int timeout = 1000 - (int)(now % 1000);
    struct gpubuf_client *client = top->cli->client;
    struct pollfd fds[2] = {
        {.fd = 0, .events = POLLIN},
        {.fd = client ? gpubuf_fd(client) : -1, .events = client ? gpubuf_events(client) : 0}};

    if (top->waiting == 0 && top->next_ms < now + (uint64_t)timeout)
        timeout = top->next_ms > now ? (int)(top->next_ms - now) : 0;
    int ready = gb_screen_poll(fds, 2, timeout);
    if (ready <= 0)
        return gb_screen_changed() || ready == 0;
    if (fds[0].revents) {
        int key;
        while ((key = gb_screen_key()) != GB_KEY_NONE)
            handle_key(top, key);
        if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            top->stop = true;
    }
    if (client && fds[1].revents && gpubuf_dispatch(client) < 0)
        lose_daemon(top);
    return true;
}

static void run_on_screen(struct top *top)
{
    bool asked = false;

    if (gb_screen_begin() < 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot take over the terminal: %m");
    while (!top->stop) {
        if (asked && top->waiting == 0)
            finish(top);
        tend(top);
        asked = top->waiting > 0;
        if (wait_for_something(top) && !top->stop)
            draw(top);
    }
    gb_screen_end();
}

void gb_cmd_top(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct top top = {.cli = cli,
                      .interval_ms = args->option[INTERVAL] ? args->number[INTERVAL] : 1000};
    int64_t rows = args->option[ROWS] ? args->number[ROWS] : 20;

    if (top.interval_ms < 100)
        gb_cli_usage(cli, "--interval is at least 100ms");
    top.view =
        (struct gb_top_view){.memory = &top.shown, .color = cli->color, .notice = "", .clock = ""};
    top.view.filter = top.filter;
    if (args->option[SORT])
        top.view.order = (enum gb_inventory_order)(args->number[SORT] - 1);
    if (args->option[ONCE] || cli->json || !gb_screen_possible()) {
        run_once(&top, rows < KEEP ? (size_t)rows : KEEP);
    } else {
        gb_cli_connect(cli);
        /* a daemon is there; find_daemon connects anew with options of its own */
        gpubuf_disconnect(cli->client);
        cli->client = NULL;
        run_on_screen(&top);
    }
    gpubuf_disconnect(cli->client); /* before the memory that answers are written to is freed */
    cli->client = NULL;
    gb_inventory_end(&top.shown);
    gb_inventory_end(&top.coming);
}
