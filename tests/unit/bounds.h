/*
 * Measures how long requests hold the loop; shared by the tests of that. A request is asked inside
 * a server in this process, and the processor time that the loop's thread takes is measured: for
 * each part of the request, and for each turn of the loop until it is answered. The aim is
 * BOUND_US; FACTOR times that fails. Each request is played several times, and the shortest time
 * counts: a disturbance can only make a thread slower. Under a sanitizer the requests are only
 * played, and fewer of each.
 *
 * Each test program includes it once, after cmocka.h.
 */
#ifndef GB_TEST_BOUNDS_H
#define GB_TEST_BOUNDS_H

#include <malloc.h>
#include <time.h>

#define DEMAND(condition) assert_true(condition)
#include "inside.h"

#define BOUND_US 250
#define FACTOR 4
#define ROUNDS 7
#define COLUMNS GB_LIMIT(columns)
#define LINE_ROOM (GB_LIMIT(line_bytes) - 64) /* the longest request, without its closing braces */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static struct inside inside;
static struct peer asker;
static struct gb_writer line;
static struct gb_service timed; /* the service's methods, with the time they take measured */

/* ---- measuring ---- */

static bool measuring;
static uint64_t longest_request, longest_turn; /* of one round, in ns */

static inline uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void note(uint64_t *longest, uint64_t begun)
{
    uint64_t ns = cpu_ns() - begun;

    if (measuring && ns > *longest)
        *longest = ns;
}

static inline int timed_serve(const struct gb_entry *entry)
{
    uint64_t begun = cpu_ns();
    int r = gb_methods.serve(entry);

    note(&longest_request, begun);
    return r;
}

static inline void timed_go_on(struct gb_server *server, uint64_t until)
{
    uint64_t begun = cpu_ns();

    gb_methods.run_tasks(server, until);
    note(&longest_request, begun);
}

static inline void turn(void)
{
    uint64_t begun = cpu_ns();

    inside_turn(&inside);
    note(&longest_turn, begun);
}

/* ---- asking ---- */

/* Sends the text, turn by turn, and returns the first line that is an answer. */
static inline char *ask_with(struct peer *peer, const char *text, size_t length, const int *fds,
                             unsigned count)
{
    struct timespec rest = {0, 100000};
    char *answer = NULL;
    size_t sent = 0;

    for (unsigned turns = 0; !answer; turns++) {
        assert_true(turns < 100000);
        if (sent < length)
            sent += peer_send_bytes(peer, text + sent, length - sent, fds, sent == 0 ? count : 0);
        else if (turns > 100)
            nanosleep(&rest, NULL); /* another process is busy */
        turn();
        while ((answer = peer_line(peer)) && !strstr(answer, "\"id\":")) {
            free(answer); /* a notification */
            answer = NULL;
        }
        assert_false(peer->closed && !answer);
    }
    return answer;
}

static inline void begin_line(const char *method)
{
    gb_writer_reset(&line);
    gb_rpc_begin_request(&line, 1, method, 0);
    gb_write_char(&line, '{');
}

static inline void end_line(void)
{
    gb_write_char(&line, '}');
    gb_rpc_end(&line);
    assert_false(line.failed);
    assert_true(line.length <= GB_LIMIT(line_bytes));
}

/* Asks without measuring; the answer must contain `part`. */
static inline void prepare(struct peer *peer, const char *part)
{
    bool measured = measuring;
    char *answer;

    measuring = false;
    answer = ask_with(peer, line.data, line.length, NULL, 0);
    measuring = measured;
    if (!strstr(answer, part))
        fail_msg("expected %s, found %.400s", part, answer);
    free(answer);
}

/* A function that writes a request whose params are always the same. */
#define ASK(function, method, params)                                                              \
    static void function(void)                                                                     \
    {                                                                                              \
        begin_line(method);                                                                        \
        gb_write_text(&line, params);                                                              \
        end_line();                                                                                \
    }

/* Writes a request whose params are `before`, `count` items and `after`. `item` is a format of the
   item's number, which it may have twice; numbers go down, as sorted names are the easier. */
static inline void items_line(const char *method, const char *before, const char *item, int count,
                              const char *after)
{
    begin_line(method);
    gb_write_text(&line, before);
    for (int i = count; i-- > 0;) {
        gb_write_format(&line, item, i, i);
        gb_write_text(&line, i ? "," : "");
    }
    gb_write_text(&line, after);
    end_line();
}

/* A function that writes such a request. */
#define ASK_ITEMS(function, method, before, item, count, after)                                    \
    static void function(void)                                                                     \
    {                                                                                              \
        items_line(method, before, item, count, after);                                            \
    }

static inline uint64_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

/* ---- what several requests need ---- */

static inline void seal(struct peer *peer, uint64_t lease)
{
    begin_line("seal");
    gb_write_format(&line, "\"lease\":%llu,\"release\":true", (unsigned long long)lease);
    end_line();
    prepare(peer, "version");
}

static inline void make_object(struct peer *peer, const char *name, const char *layout)
{
    bool measured = measuring;
    char *answer;

    measuring = false;
    begin_line("create");
    gb_write_format(&line, "\"name\":\"%s\",\"replace\":true,\"layout\":%s", name, layout);
    end_line();
    answer = ask_with(peer, line.data, line.length, NULL, 0);
    seal(peer, number_after(answer, "\"lease\":"));
    free(answer);
    measuring = measured;
}

static inline void make_small(struct peer *peer, const char *name)
{
    make_object(peer, name, "{\"kind\":\"bytes\",\"bytes\":1}");
}

/* The widest table: every column with three buffers. */
static inline void write_columns(bool metadata)
{
    size_t most = LINE_ROOM - 1024;

    gb_write_format(&line, "\"layout\":{\"kind\":\"table\",\"length\":1,\"columns\":[");
    for (int i = 0; i < COLUMNS && line.length < most; i++) {
        gb_write_format(&line, "%s{\"name\":\"column %04d\",\"dtype\":", i ? "," : "", i);
        if (metadata)
            gb_write_format(&line,
                            "\"int8\",\"length\":1,\"metadata\":{\"a\":\"%0100d\",\"b\":\"\\u00e4"
                            "%010d\"}}",
                            i, i);
        else
            gb_write_text(&line, "\"utf8\",\"length\":1,\"mask\":{},\"data\":{\"bytes\":1}}");
    }
    gb_write_text(&line, "]}");
}

static inline void create_line(const char *name, bool metadata)
{
    begin_line("create");
    gb_write_format(&line, "\"name\":\"%s\",\"replace\":true,", name);
    write_columns(metadata);
    end_line();
}

static inline uint64_t create_wide(struct peer *peer, const char *name, bool metadata)
{
    bool measured = measuring;
    uint64_t lease;
    char *answer;

    measuring = false;
    create_line(name, metadata);
    answer = ask_with(peer, line.data, line.length, NULL, 0);
    lease = number_after(answer, "\"lease\":");
    free(answer);
    measuring = measured;
    return lease;
}

/* How many sessions a user needs to have as many waiting requests as are allowed. */
#define WAITERS (GB_LIMIT(user_waits) / GB_LIMIT(session_waits))
static struct peer waiters[WAITERS];

static inline void send_waits(struct peer *peer, int count)
{
    for (int i = 0; i < count;) {
        i += peer_send_bytes(peer, line.data, line.length, NULL, 0) == line.length;
        inside_turn(&inside);
    }
}

static inline void end_awaited(void)
{
    for (size_t i = 0; i < WAITERS; i++)
        peer_close(&waiters[i]);
    for (int i = 0; i < 50; i++)
        inside_turn(&inside);
}

/* ---- the world ---- */

struct ask {
    const char *name;
    void (*prepare)(void); /* called before each time it is asked, not measured; or NULL */
    void (*write)(void);
    void (*after)(void);
    const char *part; /* a part that the answer must contain */
};

/* `manager`: the service manager that keeps descriptors, so that a journal is written; NULL:
   none. */
static inline void begin_world(const char *const *options, struct gb_notify *manager)
{
    mallopt(M_MMAP_THRESHOLD, 4 << 20); /* as main() sets it */
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
    mallopt(M_MXFAST, 0);
    gb_writer_init(&line, 0);
    inside_make(&inside, options);
    inside.server.notify = manager;
    inside.threaded = true;
    inside_listen(&inside);
    inside.server.turns.slice_ns = GB_SESSION_SLICE_NS;
    timed = gb_methods;
    timed.serve = timed_serve;
    timed.run_tasks = timed_go_on;
    inside.server.service = &timed;
    assert_true(peer_connect(&inside, &asker));
}

/* Plays a request ROUNDS times; *request and *whole become the shortest times. */
static inline void play(const struct ask *ask, uint64_t *request, uint64_t *whole)
{
    *request = *whole = UINT64_MAX;
    for (int round = 0; round < (SANITIZED ? 1 : ROUNDS); round++) {
        int fd = sealed_memfd(4096, F_SEAL_SHRINK);
        bool brings = strcmp(ask->name, "register, 4096 columns") == 0;
        char *answer;

        if (ask->prepare)
            ask->prepare();
        ask->write();
        if (brings) { /* "fds" stands before the params */
            char *text = malloc(line.length + 16), *at = strstr(line.data, "\"params\"");
            size_t before = (size_t)(at - line.data);

            memcpy(text, line.data, before);
            memcpy(text + before, "\"fds\":1,", 8);
            memcpy(text + before + 8, at, line.length - before);
            longest_request = longest_turn = 0;
            measuring = true;
            answer = ask_with(&asker, text, line.length + 8, &fd, 1);
            free(text);
        } else {
            longest_request = longest_turn = 0;
            measuring = true;
            answer = ask_with(&asker, line.data, line.length, NULL, 0);
        }
        measuring = false;
        close(fd);
        if (!strstr(answer, ask->part))
            fail_msg("%s: expected %s, found %.400s", ask->name, ask->part, answer);
        free(answer);
        if (ask->after)
            ask->after();
        *request = longest_request < *request ? longest_request : *request;
        *whole = longest_turn < *whole ? longest_turn : *whole;
    }
}

/* Plays each and prints its times. One that holds the loop for longer than `most_us` fails the
   test. */
static inline void play_all(const struct ask *asks, size_t count, uint64_t most_us)
{
    unsigned over = 0;

    print_message("%-28s %12s %12s  us\n", "", "request", "turn");
    for (size_t i = 0; i < count; i++) {
        uint64_t request, whole;

        play(&asks[i], &request, &whole);
        print_message("%-28s %12.1f %12.1f%s\n", asks[i].name, (double)request / 1e3,
                      (double)whole / 1e3, whole > BOUND_US * 1000 ? "  *" : "");
        over += whole > most_us * 1000;
    }
    if (!SANITIZED)
        assert_int_equal(over, 0);
}

static inline void end_world(void)
{
    peer_close(&asker);
    inside_end(&inside);
    gb_writer_end(&line);
}

#endif
