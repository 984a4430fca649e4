/* dial: connections to hosts whose addresses refuse or say nothing, and a stop in each state. */
#include <netdb.h>
#include <semaphore.h>

#include "tests/cases.h"

#include "client/peer/link/dial.h"
#include "descriptors.h"
#include "loopback.h"

#define NO_UTF8 "h\xff" /* IDNA refuses it before any lookup */

/* ---- the lookup, with a second address or a failure as a test wants it ---- */

static uv_getaddrinfo_cb looked_up;
static uint16_t second_port;   /* 0: the host has one address */
static int lookup_status;      /* negative: the host is not found */
static unsigned bad_sentences; /* asked for of a number that is no error: libuv leaks those */

int __real_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *lookup, uv_getaddrinfo_cb callback,
                          const char *host, const char *service, const struct addrinfo *hints);
int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *lookup, uv_getaddrinfo_cb callback,
                          const char *host, const char *service, const struct addrinfo *hints);
const char *__real_uv_strerror(int status);
const char *__wrap_uv_strerror(int status);

static void on_looked_up(uv_getaddrinfo_t *lookup, int status, struct addrinfo *addresses)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    char service[8];

    if (status == 0 && lookup_status < 0) {
        uv_freeaddrinfo(addresses);
        addresses = NULL;
        status = lookup_status;
    }
    if (status == 0 && second_port) {
        snprintf(service, sizeof(service), "%u", second_port);
        assert_null(addresses->ai_next);
        assert_int_equal(getaddrinfo("127.0.0.1", service, &hints, &addresses->ai_next), 0);
    }
    looked_up(lookup, status, addresses);
}

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *lookup, uv_getaddrinfo_cb callback,
                          const char *host, const char *service, const struct addrinfo *hints)
{
    looked_up = callback;
    return __real_uv_getaddrinfo(loop, lookup, on_looked_up, host, service, hints);
}

const char *__wrap_uv_strerror(int status)
{
    char name[64];

    if (strncmp(uv_err_name_r(status, name, sizeof(name)), "Unknown", 7) == 0)
        bad_sentences++;
    return __real_uv_strerror(status);
}

/* ---- a world ---- */

/* Sockets of the loopback, each at a port of its own. */
struct world {
    uv_loop_t loop;
    uv_check_t check;
    size_t fds;
    int sockets[3], filler;
};

enum { LISTENING, REFUSING, SILENT, NONE };

/* Dials, and the outcome of each: the socket that it connects to, or NONE and the error. */
static const struct dialing {
    const char *host;
    int first, second;    /* addresses */
    int status;           /* of the lookup */
    int connected, error; /* negative: of libuv */
} dialings[] = {
    {"127.0.0.1", LISTENING, NONE, 0, LISTENING, 0},
    {"127.0.0.1", REFUSING, NONE, 0, NONE, ECONNREFUSED},
    {"127.0.0.1", REFUSING, LISTENING, 0, LISTENING, 0},
    {"127.0.0.1", REFUSING, REFUSING, 0, NONE, ECONNREFUSED},
    {"127.0.0.1", LISTENING, NONE, UV_EAI_NONAME, NONE, UV_EAI_NONAME},
    {NO_UTF8, LISTENING, NONE, 0, NONE, UV_EINVAL},
    {"127.0.0.1", SILENT, LISTENING, 0, LISTENING, 0},
};
enum { DIALINGS = sizeof(dialings) / sizeof(dialings[0]) };

struct dialed {
    bool over;
    int fd;
    char why[200];
};

static void on_dialed(void *user, int fd, const char *why)
{
    struct dialed *dialed = user;

    assert_false(dialed->over);
    dialed->over = true;
    dialed->fd = fd;
    snprintf(dialed->why, sizeof(dialed->why), "%s", why);
}

/* The port of the loopback that a connected socket is of. */
static uint16_t connected_to(int fd)
{
    struct sockaddr_in address = {0};
    socklen_t length = sizeof(address);

    assert_int_equal(getpeername(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static struct gb_peer_dial *begin(struct world *world, const struct dialing *what,
                                  struct dialed *dialed)
{
    lookup_status = what->status;
    second_port = what->second == NONE ? 0 : loopback_port(world->sockets[what->second]);
    struct gb_peer_dial *dial = gb_peer_dial(
        &world->loop, what->host, loopback_port(world->sockets[what->first]), on_dialed, dialed);
    assert_non_null(dial);
    assert_false(dialed->over);
    return dial;
}

static struct dialed dial(struct world *world, const struct dialing *what)
{
    struct dialed dialed = {.fd = -1};

    (void)begin(world, what, &dialed);
    while (!dialed.over)
        (void)uv_run(&world->loop, UV_RUN_ONCE);
    return dialed;
}

static int set_up(void **state)
{
    struct world *world = test_calloc(1, sizeof(*world));
    struct pollfd waiting = {.events = POLLIN};

    for (int i = LISTENING; i < NONE; i++)
        world->sockets[i] = loopback_bound(); /* at the refusing one nobody listens */
    world->filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(listen(world->sockets[LISTENING], 64), 0);
    /* Its queue is full: the kernel drops what more would connect. */
    assert_int_equal(listen(world->sockets[SILENT], 0), 0);
    const struct sockaddr_in silent = loopback_address(world->sockets[SILENT]);
    assert_int_equal(connect(world->filler, (const struct sockaddr *)&silent, sizeof(silent)), 0);
    waiting.fd = world->sockets[SILENT];
    assert_int_equal(poll(&waiting, 1, -1), 1);
    assert_int_equal(uv_loop_init(&world->loop), 0);
    bad_sentences = 0;
    close(dial(world, &dialings[0]).fd); /* what the loop opens once is open now */
    world->fds = open_fds();
    *state = world;
    return 0;
}

/* Nothing of a dial is left. */
static int tear_down(void **state)
{
    struct world *world = *state;

    assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(open_fds(), world->fds);
    assert_int_equal(bad_sentences, 0);
    assert_int_equal(uv_loop_close(&world->loop), 0);
    for (int i = LISTENING; i < NONE; i++)
        close(world->sockets[i]);
    close(world->filler);
    test_free(world);
    return 0;
}

/* ---- what comes of it ---- */

TEST_WITH(test_what_comes_of_it, set_up, tear_down)
{
    struct world *world = *state;

    for (const struct dialing *one = dialings; one < dialings + DIALINGS; one++) {
        print_message("%s, %d then %d\n", one->host, one->first, one->second);
        struct dialed dialed = dial(world, one);
        if (one->connected == NONE) {
            assert_int_equal(dialed.fd, -1);
            assert_string_equal(dialed.why, one->error < 0 ? __real_uv_strerror(one->error)
                                                           : strerror(one->error));
        } else {
            assert_int_equal(connected_to(dialed.fd),
                             loopback_port(world->sockets[one->connected]));
            close(dialed.fd);
        }
    }
}

/* ---- a stop ---- */

static sem_t begun, held;

static void work_and_wait(uv_work_t *work)
{
    sem_post(&begun);
    sem_wait(&held);
}

static void on_worked(uv_work_t *work, int status)
{
    assert_int_equal(status, 0);
}

/* The pool has one thread (main): what is queued later is done later. */
TEST_WITH(test_stopped_while_the_lookup_waits_for_a_thread, set_up, tear_down)
{
    struct world *world = *state;
    struct dialed dialed = {0};
    uv_work_t work;

    assert_int_equal(uv_queue_work(&world->loop, &work, work_and_wait, on_worked), 0);
    sem_wait(&begun);
    gb_peer_dial_stop(begin(world, &dialings[0], &dialed));
    sem_post(&held);
    assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
    assert_false(dialed.over);
}

TEST_WITH(test_stopped_when_the_lookup_is_done_and_not_told, set_up, tear_down)
{
    struct world *world = *state;
    struct dialed dialed = {0};
    uv_work_t work;
    struct gb_peer_dial *dial = begin(world, &dialings[0], &dialed);

    assert_int_equal(uv_queue_work(&world->loop, &work, work_and_wait, on_worked), 0);
    sem_wait(&begun); /* so the lookup has ended, and cannot be canceled */
    gb_peer_dial_stop(dial);
    sem_post(&held);
    assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
    assert_false(dialed.over);
}

struct stopping {
    struct gb_peer_dial *dial;
    struct dialed dialed;
    unsigned left; /* turns of the loop until the stop */
};

/* After what a turn polled for, and before what it closed is closed. */
static void on_check(uv_check_t *check)
{
    struct stopping *stopping = check->data;

    if (stopping->left-- > 0 && !stopping->dialed.over)
        return;
    (void)uv_check_stop(check);
    if (!stopping->dialed.over)
        gb_peer_dial_stop(stopping->dial);
}

/* Whether the dial was still going on in that turn. */
static bool stop_after(struct world *world, const struct dialing *what, unsigned turns)
{
    struct stopping stopping = {.left = turns};

    assert_int_equal(uv_check_init(&world->loop, &world->check), 0);
    world->check.data = &stopping;
    assert_int_equal(uv_check_start(&world->check, on_check), 0);
    stopping.dial = begin(world, what, &stopping.dialed);
    if (turns == 0) {
        (void)uv_check_stop(&world->check);
        gb_peer_dial_stop(stopping.dial);
    }
    while (uv_is_active((uv_handle_t *)&world->check) && uv_run(&world->loop, UV_RUN_ONCE))
        ;
    uv_close((uv_handle_t *)&world->check, NULL);
    assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
    if (stopping.dialed.over && stopping.dialed.fd >= 0)
        close(stopping.dialed.fd);
    assert_int_equal(open_fds(), world->fds);
    return !stopping.dialed.over;
}

TEST_WITH(test_stopped_in_each_turn, set_up, tear_down)
{
    struct world *world = *state;

    for (const struct dialing *one = dialings; one < dialings + DIALINGS; one++) {
        unsigned turns = 0;
        while (one->first != SILENT && stop_after(world, one, turns))
            turns++;
        assert_in_range(turns, one->first == SILENT ? 0 : 1, 20);
    }
}

TEST_WITH(test_stopped_while_an_address_says_nothing, set_up, tear_down)
{
    static const int seconds[] = {LISTENING, NONE}; /* with a timer, and without */
    struct world *world = *state;
    struct dialed dialed = {0};
    size_t before = open_fds();

    for (size_t i = 0; i < 2; i++) {
        struct gb_peer_dial *dial =
            begin(world, &(struct dialing){"127.0.0.1", SILENT, seconds[i], 0, 0, 0}, &dialed);
        while (open_fds() == before)
            (void)uv_run(&world->loop, UV_RUN_ONCE);
        gb_peer_dial_stop(dial);
        assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(open_fds(), before);
    }
    assert_false(dialed.over);
    gb_peer_dial_stop(NULL);
}

int main(void)
{
    (void)setenv("UV_THREADPOOL_SIZE", "1", 1);
    if (sem_init(&begun, 0, 0) < 0 || sem_init(&held, 0, 0) < 0)
        return 1;
    return cmocka_run_group_tests(listed_tests, NULL, NULL);
}
