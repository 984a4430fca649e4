/* The listening socket: whose path it is, and what may be in the way. In a directory of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cases.h"

#include "daemon/base/listener.h"
#include "descriptors.h"

static char directory[32];
static size_t fds_before;

static int begin(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/gpubufd-XXXXXX");
    fds_before = open_fds();
    return mkdtemp(directory) ? 0 : -1;
}

/* The directory is empty again, and nothing was left open. */
static int end(void **state)
{
    (void)state;
    if (open_fds() != fds_before)
        return -1;
    return rmdir(directory);
}

static const char *in_directory(const char *name)
{
    static char paths[4][sizeof(directory) + 160];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%.150s", directory, name);
    return path;
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static void open_ok(struct gb_listener *listener, const char *path, unsigned mode)
{
    struct gb_error error;

    if (gb_listener_open(listener, path, mode, &error) != 0)
        fail_msg("%s", error.message);
}

/* One sentence with `part` in it; nothing is held. */
static void open_refused(const char *path, int code, const char *part)
{
    struct gb_listener listener;
    struct gb_error error;

    assert_int_equal(gb_listener_open(&listener, path, 0600, &error), code);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, part))
        fail_msg("expected \"%s\" in: %s", part, error.message);
    assert_null(listener.path);
    gb_listener_close(&listener); /* fine */
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

    assert_true(fd >= 0 && strlen(path) < sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    r = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
    return r;
}

static int bound_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    strcpy(address.sun_path, path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* ---- the tests ---- */

TEST_WITH(test_open_and_close, begin, end)
{
    const char *path = in_directory("s");
    struct gb_listener listener;
    struct stat st;

    for (int round = 0; round < 2; round++) {
        open_ok(&listener, path, 0640);
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 0777, 0640);
        assert_true(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(listener.fd, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(listener.lock_fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(connect_to(path), 0);
        gb_listener_close(&listener);
        assert_false(exists(path));
        gb_listener_close(&listener); /* once more is fine */
    }
}

/* As after a daemon that was killed: its socket, and its lock without a holder. */
TEST_WITH(test_stale, begin, end)
{
    const char *path = in_directory("s");
    struct gb_listener listener;
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct gb_error error;

        _exit(gb_listener_open(&listener, path, 0600, &error) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(exists(path));
    assert_true(exists(in_directory("s.lock")));
    open_ok(&listener, path, 0600);
    assert_int_equal(connect_to(path), 0);
    gb_listener_close(&listener);
}

TEST_WITH(test_live, begin, end)
{
    const char *path = in_directory("s");
    struct gb_listener listener;

    open_ok(&listener, path, 0600);
    for (int i = 0; i < 3; i++)
        open_refused(path, GPUBUF_E_BUSY, "in use");
    assert_int_equal(connect_to(path), 0);
    gb_listener_close(&listener);
}

/* A live socket without our lock: some other program's. It stays, and so does what it serves. */
TEST_WITH(test_live_stranger, begin, end)
{
    const char *path = in_directory("s");
    int fd = bound_socket(path);

    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 3; i++) /* also when its backlog is full of our attempts */
        open_refused(path, GPUBUF_E_BUSY, "in use");
    assert_true(exists(path));
    assert_false(exists(in_directory("s.lock")));
    close(fd);
    unlink(path);
}

TEST_WITH(test_two_at_once, begin, end)
{
    const char *path = in_directory("s");
    pid_t children[4];
    int go[2], hold[2], won = 0;
    char byte;

    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(hold), 0);
    close(bound_socket(path)); /* a stale one, for all of them to take over */
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct gb_listener listener;
            struct gb_error error;
            int r;

            close(go[1]);
            close(hold[1]);
            if (read(go[0], &byte, 1) != 0) /* all start when the parent closes its end */
                _exit(3);
            r = gb_listener_open(&listener, path, 0600, &error);
            if (r < 0)
                _exit(r == GPUBUF_E_BUSY ? 1 : 2);
            r = (int)read(hold[0], &byte, 1);
            gb_listener_close(&listener);
            _exit(r);
        }
    }
    close(go[0]);
    close(go[1]);
    for (int ended = 0; ended < 3; ended++) { /* the losers do not wait */
        int status;

        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 1);
    }
    assert_int_equal(connect_to(path), 0);
    close(hold[0]);
    close(hold[1]);
    for (int status; wait(&status) > 0; won++)
        assert_int_equal(status, 0);
    assert_int_equal(won, 1);
}

TEST_WITH(test_in_the_way, begin, end)
{
    const char *path = in_directory("s");
    int fd;

    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    open_refused(path, GPUBUF_E_BUSY, "is not a socket");
    assert_true(exists(path));
    unlink(path);

    assert_int_equal(mkdir(path, 0700), 0);
    open_refused(path, GPUBUF_E_BUSY, "is not a socket");
    assert_int_equal(rmdir(path), 0);

    assert_int_equal(symlink("/nowhere", path), 0);
    open_refused(path, GPUBUF_E_BUSY, "is not a socket");
    unlink(path);
    assert_false(exists(in_directory("s.lock")));

    assert_int_equal(symlink("/tmp/nowhere", in_directory("s.lock")), 0);
    open_refused(path, GPUBUF_E_SYSTEM, "s.lock");
    unlink(in_directory("s.lock"));
}

TEST_WITH(test_path_lengths, begin, end)
{
    size_t room = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 - strlen(directory) - 1;
    struct gb_listener listener;
    char name[160];
    const char *path;

    assert_int_equal(room + strlen(directory) + 1, 107);
    memset(name, 'n', room);
    name[room] = '\0';
    path = in_directory(name);
    open_ok(&listener, path, 0600);
    assert_int_equal(connect_to(path), 0);
    open_refused(path, GPUBUF_E_BUSY, "in use");
    gb_listener_close(&listener);

    name[room] = 'n';
    name[room + 1] = '\0';
    open_refused(in_directory(name), GPUBUF_E_INVALID, "108 bytes, and 107 is the most");
}

TEST_WITH(test_directories, begin, end)
{
    const char *closed = in_directory("d"), *path = in_directory("d/s");

    open_refused(path, GPUBUF_E_SYSTEM, "No such file or directory");
    assert_int_equal(mkdir(closed, 0500), 0);
    if (geteuid() != 0) {
        open_refused(path, GPUBUF_E_SYSTEM, "Permission denied");
    } else {
        pid_t child = fork();
        int status;

        if (child == 0) { /* root may write everywhere: as nobody */
            struct gb_listener listener;
            struct gb_error error = {0};

            if (chmod(directory, 0755) < 0 || setresuid(65534, 65534, 65534) < 0)
                _exit(3);
            _exit(gb_listener_open(&listener, path, 0600, &error) == GPUBUF_E_SYSTEM &&
                          strstr(error.message, "Permission denied")
                      ? 0
                      : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(rmdir(closed), 0);
}

/* Someone cleared the directory, and another daemon began there: what is its own stays. */
TEST_WITH(test_cleared_under_us, begin, end)
{
    const char *path = in_directory("s"), *lock = in_directory("s.lock");
    struct gb_listener first, second;

    open_ok(&first, path, 0600);
    unlink(path);
    unlink(lock);
    open_ok(&second, path, 0600);
    gb_listener_close(&first);
    assert_int_equal(connect_to(path), 0);
    assert_true(exists(lock));
    gb_listener_close(&second);
    assert_false(exists(path) || exists(lock));
}

/* Below /tmp, if nobody but this user may enter. */
static void try_own_directory(void)
{
    struct gb_listener listener;
    char own[64], path[96];

    snprintf(own, sizeof(own), "/tmp/gpubufd-%u", (unsigned)geteuid());
    snprintf(path, sizeof(path), "%s/gpubufd.sock", own);
    if (access(own, F_OK) == 0)
        return; /* a daemon of this user may be at home there */
    open_ok(&listener, NULL, 0600);
    assert_string_equal(listener.path, path);
    gb_listener_close(&listener);
    assert_int_equal(chmod(own, 0755), 0);
    open_refused(NULL, GPUBUF_E_INVALID, "--socket");
    assert_int_equal(rmdir(own), 0);
    assert_int_equal(symlink(directory, own), 0);
    open_refused(NULL, GPUBUF_E_INVALID, "--socket");
    assert_int_equal(unlink(own), 0);
}

TEST_WITH(test_default_places, begin, end)
{
    struct gb_listener listener;

    setenv("GPUBUFD_SOCKET", in_directory("e"), 1);
    open_ok(&listener, NULL, 0600);
    assert_string_equal(listener.path, in_directory("e"));
    gb_listener_close(&listener);
    unsetenv("GPUBUFD_SOCKET");
    setenv("NVIDIA_DRA_LOCAL_IPC_DIR", directory, 1);
    open_ok(&listener, NULL, 0600);
    assert_string_equal(listener.path, in_directory("gpubufd.sock"));
    gb_listener_close(&listener);
    unsetenv("NVIDIA_DRA_LOCAL_IPC_DIR");
    if (access("/run/gpubufd", W_OK) == 0)
        return; /* a daemon of this machine may be at home there */
    setenv("XDG_RUNTIME_DIR", directory, 1);
    open_ok(&listener, NULL, 0600);
    assert_string_equal(listener.path, in_directory("gpubufd.sock"));
    gb_listener_close(&listener);
    unsetenv("XDG_RUNTIME_DIR");
    try_own_directory();
}

/* Somebody else's socket: served, and left where it is. */
TEST_WITH(test_adopt, begin, end)
{
    const char *path = in_directory("s");
    struct gb_listener listener;
    struct gb_error error;
    int fd = bound_socket(path);

    assert_int_equal(gb_listener_adopt(&listener, dup(fd), NULL, &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, "no listening unix stream socket"));
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(gb_listener_adopt(&listener, dup(fd), "/elsewhere", &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "/elsewhere"));
    assert_null(listener.path);
    gb_listener_close(&listener); /* fine */
    assert_int_equal(gb_listener_adopt(&listener, -1, NULL, &error), GPUBUF_E_INVALID);

    for (int i = 0; i < 2; i++) {
        assert_int_equal(gb_listener_adopt(&listener, dup(fd), i ? path : NULL, &error), 0);
        assert_string_equal(listener.path, path);
        assert_true(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(connect_to(path), 0);
        gb_listener_close(&listener);
        assert_true(exists(path));
        assert_false(exists(in_directory("s.lock")));
    }
    close(fd);
    unlink(path);
}

RUN_TESTS(NULL, NULL)
