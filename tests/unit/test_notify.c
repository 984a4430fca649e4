/*
 * A service manager is a socket and an environment: what it is told, descriptors it keeps, and what
 * it hands over, right and wrong.
 */
#include <sys/syscall.h>

#include "tests/cases.h"

#include "daemon/survive/notify.h"
#include "descriptors.h"

static struct {
    char directory[32], path[64];
    int socket; /* the manager's */
    size_t fds;
} manager;

static void listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));

    strcpy(address.sun_path, path);
    if (*path == '@')
        address.sun_path[0] = '\0';
    manager.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(manager.socket >= 0);
    assert_int_equal(bind(manager.socket, (const struct sockaddr *)&address, length), 0);
    setenv("NOTIFY_SOCKET", path, 1);
}

static int begin(void **state)
{
    manager.fds = open_fds();
    strcpy(manager.directory, "/tmp/gpubufd-XXXXXX");
    if (!mkdtemp(manager.directory))
        return -1;
    snprintf(manager.path, sizeof(manager.path), "%s/notify", manager.directory);
    listen_at(manager.path);
    return 0;
}

static int end(void **state)
{
    if (manager.socket >= 0)
        close(manager.socket);
    unlink(manager.path);
    unsetenv("NOTIFY_SOCKET");
    return rmdir(manager.directory) == 0 && open_fds() == manager.fds ? 0 : -1;
}

static void begin_ok(struct gb_notify *notify)
{
    struct gb_error error;

    if (gb_notify_begin(notify, &error) != 0)
        fail_msg("%s", error.message);
}

/* The next message, and the descriptor that came with it (-1: none). */
static int receive(char *text, size_t size)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    struct iovec vector = {text, size - 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t length = recvmsg(manager.socket, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *rights;
    int fd;

    assert_true(length >= 0);
    assert_int_equal(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
    text[length] = '\0';
    rights = CMSG_FIRSTHDR(&message);
    if (!rights)
        return -1;
    assert_int_equal(rights->cmsg_len, CMSG_LEN(sizeof(int)));
    memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    return fd;
}

static void received(const char *expected)
{
    char text[1024];

    assert_int_equal(receive(text, sizeof(text)), -1);
    assert_string_equal(text, expected);
}

static void received_nothing(void)
{
    char byte;

    assert_int_equal(recv(manager.socket, &byte, 1, 0), -1);
}

/* ---- telling ---- */

TEST_WITH(test_what_it_is_told, begin, end)
{
    struct gb_notify notify;

    begin_ok(&notify);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_int_equal(gb_notify_send_ready(&notify), 0);
    received("READY=1");
    assert_int_equal(gb_notify_send_status(&notify, "serving %d", 3), 0);
    received("STATUS=serving 3");
    assert_int_equal(gb_notify_send_watchdog(&notify), 0);
    received("WATCHDOG=1");
    assert_int_equal(gb_notify_send_stopping(&notify, false), 0);
    received("STOPPING=1");
    assert_int_equal(gb_notify_send_stopping(&notify, true), 0);
    received("STOPPING=1\nX_FOR_GOOD=1");
    received_nothing();
    gb_notify_end(&notify);
    gb_notify_end(&notify);
}

/* Nothing that is put into a status becomes another message. */
TEST_WITH(test_status_is_one_line, begin, end)
{
    char text[1024], longest[2000];
    struct gb_notify notify;

    begin_ok(&notify);
    gb_notify_send_status(&notify, "one\nFDSTOREREMOVE=1\nFDNAME=%s", "journal");
    received("STATUS=one");
    gb_notify_send_status(&notify, "one\rtwo");
    received("STATUS=one");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    gb_notify_send_status(&notify, "%s", longest);
    receive(text, sizeof(text));
    assert_in_range(strlen(text), 500, 512);
    gb_notify_end(&notify);
}

TEST_WITH(test_an_abstract_name, begin, end)
{
    char name[64];
    struct gb_notify notify;

    close(manager.socket);
    snprintf(name, sizeof(name), "@gpubufd-test-%d", getpid());
    listen_at(name);
    begin_ok(&notify);
    assert_int_equal(gb_notify_send_ready(&notify), 0);
    received("READY=1");
    gb_notify_end(&notify);
}

/* ---- keeping ---- */

TEST_WITH(test_store_names, begin, end)
{
    static const char *const bad[] = {"", "a:b", "a\nb", "\x7f", "\xc3\xa9", "\t"};
    char longest[GB_NOTIFY_NAME_BYTES + 2];
    struct gb_notify notify;
    char text[1024];
    int fd = marked_fd(1);

    begin_ok(&notify);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(gb_notify_store_fd(&notify, bad[i], fd), GPUBUF_E_INVALID);
        assert_int_equal(gb_notify_unstore_fd(&notify, bad[i]), GPUBUF_E_INVALID);
    }
    memset(longest, 'n', sizeof(longest));
    longest[GB_NOTIFY_NAME_BYTES + 1] = '\0';
    assert_int_equal(gb_notify_store_fd(&notify, longest, fd), GPUBUF_E_INVALID);
    received_nothing();
    longest[GB_NOTIFY_NAME_BYTES] = '\0';
    assert_int_equal(gb_notify_store_fd(&notify, longest, fd), 0);
    close(receive(text, sizeof(text)));
    assert_non_null(strstr(text, longest));
    close(fd);
    gb_notify_end(&notify);
}

TEST_WITH(test_store_no_descriptor, begin, end)
{
    struct gb_notify notify;

    begin_ok(&notify);
    assert_int_equal(gb_notify_store_fd(&notify, "name", 1000), GPUBUF_E_SYSTEM);
    received_nothing();
    gb_notify_end(&notify);
}

/* Stores until the manager's queue is full and one notice is queued here; returns how many. */
static unsigned fill(struct gb_notify *notify, int fd)
{
    unsigned count = 0;
    char name[16];

    while (!notify->queue) {
        snprintf(name, sizeof(name), "n%u", count++);
        assert_int_equal(gb_notify_store_fd(notify, name, fd), 0);
        assert_true(count < 100000);
    }
    return count;
}

/* The next FDSTORE has that number; its descriptor came with it. */
static void received_store(unsigned number, unsigned mark)
{
    char text[1024], expected[64];
    int fd = receive(text, sizeof(text));

    snprintf(expected, sizeof(expected), "FDSTORE=1\nFDNAME=n%u\nFDPOLL=0", number);
    assert_string_equal(text, expected);
    assert_int_equal(mark_of(fd), mark);
    close(fd);
}

/* Nothing waits, and what a full manager does not take comes in order when it reads again. */
/* RELIABILITY.md: The daemon ends 22 */
TEST_WITH(test_full, begin, end)
{
    struct gb_notify notify;
    int fd = marked_fd(9);
    unsigned count;

    begin_ok(&notify);
    assert_true(gb_notify_due(&notify) == UINT64_MAX);
    count = fill(&notify, fd);
    assert_int_equal(gb_notify_store_fd(&notify, "gone", fd), 0);
    assert_int_equal(gb_notify_send_stopping(&notify, false), 0);
    assert_int_equal(gb_notify_store_fd(&notify, "last", fd), 0);
    assert_int_equal(gb_notify_unstore_fd(&notify, "gone"), 0);
    assert_int_equal(gb_notify_unstore_fd(&notify, "last"), 0);
    assert_true(gb_notify_due(&notify) < UINT64_MAX);
    assert_false(gb_notify_wait_sent(&notify, 20));
    assert_false(gb_notify_has_sent(&notify, 1));
    assert_true(gb_notify_has_sent(&notify, 0));
    for (unsigned i = 0; i + 1 < count; i++)
        received_store(i, 9);
    assert_true(gb_notify_wait_sent(&notify, 10000));
    assert_true(gb_notify_has_sent(&notify, notify.queued));
    received_store(count - 1, 9);
    received("STOPPING=1");
    received_nothing();
    assert_true(gb_notify_due(&notify) == UINT64_MAX);
    close(fd);
    gb_notify_end(&notify);
}

/* Of memory that was given back a manager that does not read keeps what its socket holds, and no
   more: what waits in the daemon is not sent any more. */
/* RELIABILITY.md: The daemon ends 23 */
TEST_WITH(test_what_a_full_manager_keeps, begin, end)
{
    enum { COUNT = 400 };
    struct gb_notify notify;
    struct pollfd given[COUNT]; /* the other ends of what was stored */
    unsigned length = 0, kept = 0;
    FILE *setting = fopen("/proc/sys/net/unix/max_dgram_qlen", "re");
    char name[16];

    if (!setting || fscanf(setting, "%u", &length) != 1 || length + 1 >= COUNT)
        length = 0;
    if (setting)
        fclose(setting);
    if (!length)
        skip();
    begin_ok(&notify);
    for (int i = 0; i < COUNT; i++) {
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        snprintf(name, sizeof(name), "kept%d", i);
        assert_int_equal(gb_notify_store_fd(&notify, name, ends[1]), 0);
        given[i] = (struct pollfd){.fd = ends[0]};
        close(ends[1]);
    }
    for (int i = COUNT; i-- > 0;) {
        snprintf(name, sizeof(name), "kept%d", i);
        assert_int_equal(gb_notify_unstore_fd(&notify, name), 0);
    }
    assert_false(gb_notify_wait_sent(&notify, 20));
    poll(given, COUNT, 0);
    for (int i = 0; i < COUNT; i++) {
        kept += !(given[i].revents & POLLHUP);
        close(given[i].fd);
    }
    assert_in_range(kept, 1, length + 1);
    gb_notify_end(&notify);
}

/* A manager that takes nothing for a second is late, until it has taken all. A sign of life passes
   what is queued. */
/* RELIABILITY.md: The daemon ends 22 */
TEST_WITH(test_late, begin, end)
{
    struct gb_notify notify;
    int fd = marked_fd(9);
    unsigned count;

    begin_ok(&notify);
    count = fill(&notify, fd);
    assert_false(notify.late);
    assert_false(gb_notify_wait_sent(&notify, 1100));
    assert_true(notify.late);
    gb_notify_send_watchdog(&notify);
    for (unsigned i = 0; i + 1 < count; i++)
        received_store(i, 9);
    assert_true(gb_notify_wait_sent(&notify, 10000));
    received("WATCHDOG=1");
    received_store(count - 1, 9);
    assert_false(notify.late);
    close(fd);
    gb_notify_end(&notify);
}

/* ---- taking ---- */

static const char *decimal(long long number)
{
    static char texts[4][32];
    static unsigned next;
    char *text = texts[next++ % 4];

    snprintf(text, sizeof(texts[0]), "%lld", number);
    return text;
}

/*
 * Runs `check` in a child that was handed descriptors from number 3 on, marked 100, 101, …: the
 * numbers are taken here. It says by true that all is well.
 */
static void with_fds(unsigned count, bool (*check)(struct gb_notify *, int, struct gb_error *))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        struct gb_notify notify;
        struct gb_error error = {0};
        bool well;
        int r;

        closefrom(3);
        for (unsigned i = 0; i < count; i++) {
            int fd = marked_fd(100 + i);

            if (fd != (int)(3 + i))
                _exit(3);
            fcntl(fd, F_SETFD, 0); /* as after an exec */
        }
        if (getenv("LISTEN_PID") && strcmp(getenv("LISTEN_PID"), "self") == 0)
            setenv("LISTEN_PID", decimal(getpid()), 1);
        if (getenv("WATCHDOG_PID") && strcmp(getenv("WATCHDOG_PID"), "self") == 0)
            setenv("WATCHDOG_PID", decimal(getpid()), 1);
        unsetenv("NOTIFY_SOCKET");
        r = gb_notify_begin(&notify, &error);
        well = check(&notify, r, &error);
        if (!well)
            fprintf(stderr, "returned %d: %s\n", r, error.message);
        gb_notify_end(&notify);
        if (getenv("LISTEN_FDS") || getenv("LISTEN_PID") || getenv("LISTEN_FDNAMES") ||
            getenv("WATCHDOG_USEC") || getenv("WATCHDOG_PID") || getenv("LISTEN_PIDFDID"))
            _exit(2);
        _exit(well ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void hand_over(const char *pid, const char *count, const char *names)
{
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", count, 1);
    if (names)
        setenv("LISTEN_FDNAMES", names, 1);
    else
        unsetenv("LISTEN_FDNAMES");
}

static int end_taking(void **state)
{
    static const char *const variables[] = {"LISTEN_PID",     "LISTEN_FDS",   "LISTEN_PIDFDID",
                                            "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    return end(state);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool takes_three(struct gb_notify *notify, int r, struct gb_error *error)
{
    int first, second;

    if (r != 0 || notify->fd_count != 3)
        return false;
    for (int fd = 3; fd < 6; fd++)
        if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            return false;
    if (strcmp(notify->fds[0].name, "segment") != 0 || strcmp(notify->fds[1].name, "") != 0)
        return false;
    first = gb_notify_acquire_fd(notify, "segment");
    second = gb_notify_acquire_fd(notify, "segment");
    if (mark_of(first) != 100 || mark_of(second) != 102 ||
        gb_notify_acquire_fd(notify, "segment") != -1)
        return false;
    gb_notify_end(notify); /* what was not taken is closed, what was is not */
    return is_open(first) && is_open(second) && !is_open(4);
}

TEST_WITH(test_take, begin, end_taking)
{
    hand_over("self", "3", "segment::segment");
    with_fds(3, takes_three);
}

static bool takes_unnamed(struct gb_notify *notify, int r, struct gb_error *error)
{
    return r == 0 && notify->fd_count == 1 &&
           mark_of(gb_notify_acquire_fd(notify, GB_NOTIFY_SOCKET)) == 100;
}

TEST_WITH(test_take_unnamed, begin, end_taking)
{
    hand_over("self", "1", NULL);
    with_fds(2, takes_unnamed);
}

/* Neither taken nor closed. */
static bool takes_none(struct gb_notify *notify, int r, struct gb_error *error)
{
    gb_notify_end(notify);
    return r == 0 && is_open(3) && is_open(4);
}

TEST_WITH(test_take_what_is_for_others, begin, end_taking)
{
    hand_over("1", "2", NULL);
    with_fds(2, takes_none);
    hand_over("self", "0", NULL);
    with_fds(2, takes_none);
    unsetenv("LISTEN_PID");
    with_fds(2, takes_none);
    hand_over("self", "2", NULL);
    unsetenv("LISTEN_FDS");
    with_fds(2, takes_none);
}

static const char *expected_part;

static bool is_refused(struct gb_notify *notify, int r, struct gb_error *error)
{
    return r < 0 && error->code == r && strstr(error->message, expected_part) &&
           notify->socket == -1 && notify->fd_count == 0 && is_open(3) && is_open(4);
}

TEST_WITH(test_contradictions, begin, end_taking)
{
    static const struct {
        const char *pid, *count, *names, *part;
    } cases[] = {
        {"self", "3", "a:b:c", "descriptor 5 cannot be used"},
        {"self", "2", NULL, "LISTEN_FDNAMES does not say which is the socket"},
        {"self", "x", NULL, "LISTEN_FDS is \"x\""},
        {"self", "", NULL, "LISTEN_FDS is \"\""},
        {"self", "-1", NULL, "no number"},
        {"self", "99999999999", NULL, "too many"},
        {"self", "99999999999999999999999", NULL, "no number"},
        {"me", "2", NULL, "LISTEN_PID is \"me\""},
        {"self", "2", "one", "1 names for 2 descriptors"},
        {"self", "2", "a:b:c", "3 names for 2 descriptors"},
        {"self", "2", "", "1 names for 2 descriptors"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hand_over(cases[i].pid, cases[i].count, cases[i].names);
        expected_part = cases[i].part;
        with_fds(2, is_refused);
    }
}

TEST_WITH(test_bad_sockets, begin, end)
{
    static const struct {
        const char *path, *part;
    } cases[] = {
        {"relative", "NOTIFY_SOCKET"},
        {"vsock:2:1234", "NOTIFY_SOCKET"},
        {"@", "NOTIFY_SOCKET"},
        {"/", "NOTIFY_SOCKET"},
        {"/nowhere/at/all", "cannot reach the service manager"},
    };
    char longest[200];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gb_notify notify;
        struct gb_error error = {0};

        setenv("NOTIFY_SOCKET", cases[i].path, 1);
        assert_true(gb_notify_begin(&notify, &error) < 0);
        assert_non_null(strstr(error.message, cases[i].part));
        assert_int_equal(notify.socket, -1);
        assert_null(getenv("NOTIFY_SOCKET"));
    }
    memset(longest, 'n', sizeof(longest) - 1);
    longest[0] = '@';
    longest[sizeof(longest) - 1] = '\0';
    setenv("NOTIFY_SOCKET", longest, 1);
    assert_int_equal(gb_notify_begin(&(struct gb_notify){0}, NULL), GPUBUF_E_INVALID);
}

/* ---- the watchdog ---- */

static uint64_t expected_ms;

static bool has_watchdog(struct gb_notify *notify, int r, struct gb_error *error)
{
    return r == 0 && notify->watchdog_ms == expected_ms;
}

TEST_WITH(test_watchdog, begin, end_taking)
{
    static const struct {
        const char *usec, *pid;
        uint64_t ms;
    } cases[] = {
        {"30000000", "self", 30000},
        {"30000000", NULL, 30000},
        {"30000000", "1", 0},
        {"999", NULL, 1},
        {"0", NULL, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv("WATCHDOG_USEC", cases[i].usec, 1);
        if (cases[i].pid)
            setenv("WATCHDOG_PID", cases[i].pid, 1);
        else
            unsetenv("WATCHDOG_PID");
        expected_ms = cases[i].ms;
        with_fds(0, has_watchdog);
    }
}

RUN_TESTS(NULL, NULL)
