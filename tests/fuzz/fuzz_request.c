/*
 * request: a whole server in this process, and up to four sessions that send it anything.
 *
 * The input is a program, a step a line:
 *   0text … 3text   the session sends the text as a message
 *   atext … dtext   it sends the text without a newline: a piece of a message
 *   F0kinds         its next sending brings descriptors: s sealed, w sealed against writing too,
 *                   u unsealed, n no memfd
 *   X0  H0          it closes; it says that it will send no more
 *   Q0  R0          it reads no longer; it does again
 *   +step           without a turn of the loop after it
 * After each turn every account is compared with what is there; what the server sends is JSON, and
 * never admits a defect. After the last step nothing is left: no byte, no descriptor.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

#include "tests/unit/inside.h"
#include "tests/unit/random.h"

enum { PEERS = 4, STEPS = 256 };

struct player {
    struct peer peer;
    bool deaf;
    int fds[GB_LIMIT(fds)]; /* for its next sending */
    unsigned fd_count;
};

static struct inside inside;
static struct player players[PEERS];

static void begin_once(void)
{
    static const char *const options[] = {"--device",
                                          "host:16M",
                                          "--limit=session_leases=64",
                                          "--limit=session_unsealed=8",
                                          "--limit=session_watches=4",
                                          "--limit=session_waits=4",
                                          "--limit=user_objects=64",
                                          "--limit=user_segments=24",
                                          "--limit=sessions=3",
                                          "--limit=output_bytes=400K",
                                          NULL};
    static bool begun;
    char lock[64];

    if (begun)
        return;
    begun = true;
    inside_begin(&inside, options);
    /* Nobody connects by the path, and nobody would tidy up when fuzzing is over. */
    unlink(inside.socket);
    snprintf(lock, sizeof(lock), "%s.lock", inside.socket);
    unlink(lock);
    DEMAND(rmdir(inside.directory) == 0);
    for (int i = 0; i < PEERS; i++)
        players[i].peer.fd = -1;
}

/* So that an input means the same whenever it is played. */
static void number_anew(void)
{
    inside.server.next_session = inside.server.next_watch = 1;
    inside.server.store.next_segment = 1;
    inside.server.registry.next_lease = inside.server.registry.next_version = 1;
}

/* ---- steps ---- */

static void hear(struct player *player)
{
    struct gb_json value;
    struct gb_error error;
    char *line;

    if (player->peer.fd < 0 || player->deaf)
        return;
    while ((line = peer_line(&player->peer))) {
        DEMAND(gb_json_check(line, strlen(line), &value, &error) == 0);
        DEMAND(!strstr(line, "\"kind\":\"internal\""));
        free(line);
    }
    if (player->peer.closed)
        peer_close(&player->peer);
}

static void turn(void)
{
    inside_turn(&inside);
    inside_check(&inside);
    for (int i = 0; i < PEERS; i++)
        hear(&players[i]);
}

static void drop_fds(struct player *player)
{
    while (player->fd_count > 0)
        close(player->fds[--player->fd_count]);
}

static void say(struct player *player, const char *text, size_t length)
{
    if (player->peer.fd < 0 && !peer_connect(&inside, &player->peer))
        return;
    peer_send_bytes(&player->peer, text, length, player->fds, player->fd_count);
    drop_fds(player);
}

static void take_fds(struct player *player, const char *kinds, size_t length)
{
    for (size_t i = 0; i < length && player->fd_count < GB_LIMIT(fds); i++) {
        int *fd = &player->fds[player->fd_count];

        switch (kinds[i]) {
        case 's':
            *fd = sealed_memfd(65536, F_SEAL_SHRINK);
            break;
        case 'w':
            *fd = sealed_memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
            break;
        case 'u':
            *fd = sealed_memfd(65536, 0);
            break;
        default:
            *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
        DEMAND(*fd >= 0);
        player->fd_count++;
    }
}

/* The step's text ends with its newline, which may be overwritten. */
static void step(const char *text, size_t length)
{
    char kind = text[0];
    struct player *player;

    if (kind >= '0' && kind < '0' + PEERS) {
        say(&players[kind - '0'], text + 1, length);
    } else if (kind >= 'a' && kind < 'a' + PEERS && length > 1) {
        say(&players[kind - 'a'], text + 1, length - 1);
    } else if (length > 1 && text[1] >= '0' && text[1] < '0' + PEERS) {
        player = &players[text[1] - '0'];
        if (kind == 'F')
            take_fds(player, text + 2, length - 2);
        else if (kind == 'X')
            peer_close(&player->peer);
        else if (kind == 'H' && player->peer.fd >= 0)
            shutdown(player->peer.fd, SHUT_WR);
        else if (kind == 'Q' || kind == 'R')
            player->deaf = kind == 'Q';
    }
}

static void play(const char *text, size_t size)
{
    const char *end = text + size;

    for (int steps = 0; text < end && steps < STEPS; steps++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        bool quiet = *text == '+';

        if (!newline)
            return; /* an unfinished step is none */
        text += quiet;
        if (text < newline)
            step(text, (size_t)(newline - text));
        if (!quiet)
            turn();
        text = newline + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t fds;

    begin_once();
    fds = open_fds();
    number_anew();
    play((const char *)data, size);
    for (int i = 0; i < PEERS; i++) {
        drop_fds(&players[i]);
        peer_close(&players[i].peer);
        players[i].deaf = false;
    }
    inside_empty(&inside);
    DEMAND(open_fds() == fds);
    return 0;
}

/* ---- mutations: steps are put in, taken out, moved and changed ---- */

#define CALL(method, params)                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":#,\"method\":\"" method "\",\"params\":{" params "}}"
#define REGISTER(fds, handles)                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":#,\"fds\":" fds ",\"method\":\"register\",\"params\":{"           \
    "\"name\":\"@\",\"layout\":{\"kind\":\"array\",\"dtype\":\"int8\",\"shape\":[64],\"data\":{"   \
    "\"handle\":0,\"offset\":0,\"bytes\":64}},\"handles\":[" handles "],\"replace\":true,"         \
    "\"wait_ms\":!}}"
#define HANDLE(i) "{\"kind\":\"memfd\",\"fd\":" i ",\"bytes\":65536,\"device\":\"host\"}"

/* `#`: a small number, `@`: a name, `$`: a size, `!`: a time to wait, `%`: a session. */
static const char *const templates[] = {
    "%" CALL("hello", "\"protocol\":1,\"client\":\"@\""),
    "%" CALL("create", "\"name\":\"@\",\"layout\":{\"kind\":\"bytes\",\"bytes\":$}"),
    "%" CALL("create", "\"name\":\"@\",\"layout\":{\"kind\":\"bytes\",\"bytes\":$},\"replace\":true"
                       ",\"wait_ms\":!,\"evict\":\"drop\""),
    "%" CALL("create",
             "\"name\":\"@\",\"layout\":{\"kind\":\"bytes\",\"bytes\":$},\"mode\":\"0644\""
             ",\"evict\":\"keep\",\"ttl_ms\":!"),
    "%" CALL("create", "\"name\":\"@/@\",\"layout\":{\"kind\":\"table\",\"length\":4,\"columns\":[{"
                       "\"name\":\"@\",\"dtype\":\"int32\",\"length\":4,\"mask\":{}},{\"name\":"
                       "\"t\",\"dtype\":\"utf8\",\"length\":4,\"data\":{\"bytes\":$}}]}"),
    "%" CALL("seal", "\"lease\":#"),
    "%" CALL("seal", "\"lease\":#,\"release\":true,\"null_counts\":{\"@\":#}"),
    "%" CALL("abort", "\"lease\":#"),
    "%" CALL("open", "\"name\":\"@\""),
    "%" CALL("open", "\"name\":\"@\",\"wait_ms\":!,\"segments\":\"all\""),
    "%" CALL("open", "\"name\":\"@\",\"version\":#"),
    "%" CALL("open", "\"names\":[\"@\",\"@\",\"@/@\"],\"wait_ms\":!"),
    "%" CALL("release", "\"lease\":#"),
    "%" CALL("release", "\"leases\":[#,#,#]"),
    "%" REGISTER("1", HANDLE("0")),
    "%" REGISTER("2", HANDLE("1") "," HANDLE("0")),
    "%" CALL("alias", "\"name\":\"@\",\"of\":\"@\",\"slice\":{\"offset\":#,\"length\":#}"),
    "%" CALL("alias", "\"name\":\"@\",\"of\":\"@/@\",\"columns\":[\"@\",\"t\"],\"replace\":true"),
    "%" CALL("delete", "\"name\":\"@\""),
    "%" CALL("delete", "\"names\":[\"@\",\"@\"]"),
    "%" CALL("list", "\"prefix\":\"@\",\"limit\":#"),
    "%" CALL("stat", "\"name\":\"@\""),
    "%" CALL("pin", "\"name\":\"@\""),
    "%" CALL("unpin", "\"name\":\"@\""),
    "%" CALL("spill", "\"name\":\"@\""),
    "%" CALL("spill", "\"name\":\"@\",\"tier\":\"disk\""),
    "%" CALL("restore", "\"name\":\"@\""),
    "%" CALL("why", "\"name\":\"@\""),
    "%" CALL("leases", ""),
    "%" CALL("unmap", "\"segments\":[#,#]"),
    "%" CALL("trim", ""),
    "%" CALL("trim", "\"device\":\"host\",\"bytes\":$"),
    "%" CALL("watch", ""),
    "%" CALL("watch", "\"prefix\":\"@\",\"kinds\":[\"sealed\",\"evicted\"]"),
    "%" CALL("unwatch", "\"watch\":#"),
    "%" CALL("settle", "\"objects\":[{\"name\":\"@\",\"version\":#}]"),
    "%" CALL("stats", ""),
    "%" CALL("describe", ""),
    "%{\"jsonrpc\":\"2.0\",\"method\":\"open\",\"params\":{\"name\":\"@\"}}",
    "F%s",
    "F%ws",
    "F%un",
    "X%",
    "H%",
    "Q%",
    "R%",
};

#define TEMPLATES (sizeof(templates) / sizeof(templates[0]))

static size_t fill_in(char *out, const char *template, struct test_random *random)
{
    static const char *const sizes[] = {"0",       "1",       "4096",    "300000",
                                        "2097152", "4194304", "8388608", "16777216"};
    size_t length = 0;

    for (; *template; template ++) {
        const char *text = NULL;

        if (*template == '$')
            text = sizes[test_random_below(random, 8)];
        else if (*template == '!')
            text = test_random_below(random, 4) ? "60000" : "1";
        if (text) {
            length += (size_t)sprintf(out + length, "%s", text);
            continue;
        }
        out[length++] = *template == '#'   ? (char)('0' + test_random_below(random, 10))
                        : *template == '@' ? (char)('p' + test_random_below(random, 4))
                        : *template == '%' ? (char)('0' + test_random_below(random, PEERS))
                                           : *template;
    }
    out[length++] = '\n';
    return length;
}

/* Where the so-many-th step begins. */
static size_t step_at(const uint8_t *data, size_t size, size_t number)
{
    size_t at = 0;

    while (at < size && number > 0)
        number -= data[at++] == '\n';
    return at;
}

static size_t put_in(uint8_t *data, size_t size, size_t most, size_t from, size_t to,
                     const void *text, size_t length)
{
    if (size - (to - from) + length > most)
        return size;
    memmove(data + from + length, data + to, size - to);
    if (length > 0)
        memcpy(data + from, text, length);
    return size - (to - from) + length;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    struct test_random random = {seed};
    unsigned steps = 0, what = test_random_below(&random, 10);
    size_t from, to, length;
    char text[1024];

    for (size_t i = 0; i < size; i++)
        steps += data[i] == '\n';
    from = step_at(data, size, test_random_below(&random, steps + 1));
    to = step_at(data + from, size - from, 1) + from;
    if (what == 0 && LLVMFuzzerMutate)
        return LLVMFuzzerMutate(data, size, most);
    if (what == 1)
        return put_in(data, size, most, from, to, NULL, 0);
    if (what == 2) /* the step once more, right behind */
        return to - from > sizeof(text) ? size
                                        : put_in(data, size, most, to, to,
                                                 memcpy(text, data + from, to - from), to - from);
    if (what == 3 && from < size && data[from] == '+')
        return put_in(data, size, most, from, from + 1, NULL, 0);
    if (what == 3)
        return put_in(data, size, most, from, from, "+", 1);
    if (what == 4 && to > from + 1 && data[from] >= '0' && data[from] < '0' + PEERS) {
        /* a message in two pieces */
        size_t cut = from + 1 + test_random_below(&random, (unsigned)(to - from - 1));
        char middle[2] = {'\n', (char)data[from]};

        data[from] = (uint8_t)(data[from] - '0' + 'a');
        return put_in(data, size, most, cut, cut, middle, 2);
    }
    if (what == 5) { /* another number somewhere */
        for (size_t i = from; i < to; i++)
            if (data[i] >= '0' && data[i] <= '9' && test_random_below(&random, 4) == 0)
                data[i] = (uint8_t)('0' + test_random_below(&random, 10));
        return size;
    }
    length = fill_in(text, templates[test_random_below(&random, TEMPLATES)], &random);
    return put_in(data, size, most, from, from, text, length);
}
