#include "harness.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/prctl.h>

#define PATIENCE_MS 60000

static char directory[64];
static char socket_path[108];
static pid_t daemon_pid;

static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the daemon ---- */

const char *daemon_socket(void)
{
    return socket_path;
}

static void run_daemon(const char *const *arguments)
{
    const char *build = getenv("GPUBUF_BUILD");
    const char *argv[32];
    char program[512];
    size_t count = 0;
    snprintf(program, sizeof(program), "%s/bin/gpubufd", build ? build : "build");
    argv[count++] = program;
    argv[count++] = "--socket";
    argv[count++] = socket_path;
    argv[count++] = "--device";
    argv[count++] = "host:256M";
    argv[count++] = "--log-level";
    argv[count++] = "warning";
    for (size_t i = 0; arguments && arguments[i] && count < COUNT(argv) - 1; i++)
        argv[count++] = arguments[i];
    argv[count] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(program, (char *const *)(uintptr_t)argv);
    perror(program);
    _exit(127);
}

/* The library starts its thread, which has descriptors, with the first lease of the process, so
   this takes one. */
void start_thread(void)
{
    CLIENT *client = connect_client();
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 1};
    struct gpubuf_create_options options = {.size = sizeof(options), .device = "host"};
    struct gpubuf_object *object;
    if (gpubuf_create(client, "first", &layout, &options, &object) == 0)
        gpubuf_release(object);
}

static int launch_daemon(const char *const *arguments)
{
    daemon_pid = fork();
    if (daemon_pid < 0)
        return -1;
    if (daemon_pid == 0)
        run_daemon(arguments);

    struct gpubuf_connect_options options = {.size = sizeof(options), .path = socket_path};
    for (int64_t deadline = now_ms() + PATIENCE_MS; now_ms() < deadline; pause_briefly()) {
        struct gpubuf_client *client;
        if (gpubuf_connect(&client, &options) == 0) {
            gpubuf_disconnect(client);
            return 0;
        }
        if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid)
            break;
    }
    fprintf(stderr, "the daemon does not start: %s\n", gpubuf_errmsg(NULL));
    return -1;
}

int start_daemon_with(const char *const *arguments)
{
    strcpy(directory, "/tmp/gpubuf-test.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(socket_path, sizeof(socket_path), "%s/socket", directory);
    return launch_daemon(arguments);
}

void start_daemon_again(void)
{
    assert_int_equal(daemon_pid, 0);
    assert_int_equal(launch_daemon(NULL), 0);
}

pid_t daemon_process(void)
{
    return daemon_pid;
}

/* Whether a child of the supervisor is a closer ("gpubufd-…") that an earlier daemon left. */
static bool is_left(int pid)
{
    char path[64], name[32] = "gpubufd-";
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    FILE *file = fopen(path, "r");
    if (file && !fgets(name, sizeof(name), file))
        name[0] = '\0';
    if (file)
        (void)fclose(file);
    return strncmp(name, "gpubufd-", strlen("gpubufd-")) == 0;
}

pid_t daemon_child(void)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon_pid, (int)daemon_pid);
    FILE *file = fopen(path, "r");
    do {
        if (!file || fscanf(file, "%d", &pid) != 1)
            pid = 0;
    } while (pid && is_left(pid));
    if (file)
        (void)fclose(file);
    return pid;
}

void crash_daemon(void)
{
    pid_t child = daemon_child();
    assert_true(child > 0);
    assert_int_equal(kill(child, SIGKILL), 0);
}

int start_daemon(void **state)
{
    if (start_daemon_with(NULL) < 0)
        return -1;
    start_thread();
    return 0;
}

static void remove_directory(void)
{
    unlink(socket_path);
    char lock[128];
    snprintf(lock, sizeof(lock), "%s.lock", socket_path);
    unlink(lock);
    rmdir(directory);
}

int stop_daemon(void **state)
{
    int status = -1;
    if (daemon_pid > 0) {
        kill(daemon_pid, SIGTERM);
        int64_t deadline = now_ms() + PATIENCE_MS;
        while (waitpid(daemon_pid, &status, WNOHANG) == 0) {
            if (now_ms() > deadline) {
                kill(daemon_pid, SIGKILL);
                waitpid(daemon_pid, &status, 0);
                break;
            }
            pause_briefly();
        }
        daemon_pid = 0;
    } else {
        status = 0; /* killed by the test */
    }
    remove_directory();
    if (status != 0)
        fprintf(stderr, "the daemon ended with status 0x%x\n", (unsigned)status);
    return status == 0 ? 0 : -1;
}

/* Makes a connection after all others, so that it is the last one to be closed. */
static int connect_last(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The processes that close descriptors for the daemon share its sockets and outlive it for a
   moment. Its clients see its end only when these have ended too, so this waits for that. */
void kill_daemon(void)
{
    struct pollfd last = {.fd = connect_last(), .events = POLLRDHUP};

    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    daemon_pid = 0;
    assert_int_equal(poll(&last, 1, PATIENCE_MS), 1);
    close(last.fd);
}

struct gpubuf_client *connect_with(const struct gpubuf_connect_options *given)
{
    struct gpubuf_connect_options options = {.size = sizeof(options)};
    struct gpubuf_client *client = NULL;
    if (given)
        options = *given;
    options.path = socket_path;
    /* The defaults are for people; a machine that tests may stand still for longer. */
    if (options.timeout_ms == 0)
        options.timeout_ms = PATIENCE_MS;
    if (options.resume_ms == 0)
        options.resume_ms = PATIENCE_MS;
    if (options.cache_lease_ms == 0)
        options.cache_lease_ms = PATIENCE_MS;
    check_result(NULL, gpubuf_connect(&client, &options), 0, __FILE__, __LINE__);
    return client;
}

struct gpubuf_client *connect_client(void)
{
    return connect_with(NULL);
}

struct gpubuf_client *connect_uncached(void)
{
    const struct gpubuf_connect_options options = {.size = sizeof(options),
                                                   .cache_leases = GPUBUF_NO_CACHE};

    return connect_with(&options);
}

void end_client(struct gpubuf_client **client)
{
    gpubuf_disconnect(*client);
}

/* ---- checks ---- */

void check_result(const struct gpubuf_client *client, int r, int expected, const char *file,
                  int line)
{
    if (r == expected)
        return;
    print_error("expected %s, got %s (%s)\n", expected ? gpubuf_errkind(expected) : "success",
                r < 0 ? gpubuf_errkind(r) : "success", r < 0 ? gpubuf_errmsg(client) : "");
    _fail(file, line);
}

size_t count_fds(void)
{
    size_t count = 0;
    DIR *listing = opendir("/proc/self/fd");
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

size_t count_mappings(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "/memfd:") != NULL;
    fclose(maps);
    return count;
}

static size_t fds_before, mappings_before;

int count_before(void **state)
{
    fds_before = count_fds();
    mappings_before = count_mappings();
    return 0;
}

int count_after(void **state)
{
    if (count_fds() == fds_before && count_mappings() == mappings_before)
        return 0;
    print_error("descriptors: %zu, then %zu; mappings: %zu, then %zu\n", fds_before, count_fds(),
                mappings_before, count_mappings());
    return -1;
}

void wait_until(bool (*condition)(void *arg), void *arg)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (!condition(arg)) {
        if (now_ms() > deadline)
            fail_msg("the condition has not come about within %d ms", PATIENCE_MS);
        pause_briefly();
    }
}

int64_t leases_of(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_info info;
    return gpubuf_stat(client, name, &info) == 0 ? (int64_t)info.leases : -1;
}

uint64_t stat_value(struct gpubuf_client *client, const char *key)
{
    char *text = NULL, quoted[64];
    check_result(client, gpubuf_call(client, "stats", NULL, PATIENCE_MS, &text), 0, __FILE__,
                 __LINE__);
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *found = strstr(text, quoted);
    assert_non_null(found);
    uint64_t value = strtoull(found + strlen(quoted), NULL, 10);
    gpubuf_free(text);
    return value;
}

void dispatch_until(struct gpubuf_client *client, const bool *flag)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (!*flag) {
        struct pollfd fd = {.fd = gpubuf_fd(client), .events = gpubuf_events(client)};
        assert_true(now_ms() < deadline);
        assert_true(poll(&fd, 1, PATIENCE_MS) > 0);
        int r = gpubuf_dispatch(client);
        if (r < 0 && !*flag)
            fail_msg("dispatch: %s", gpubuf_errmsg(client));
    }
}

void note_told(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
               void *arg)
{
    struct told *told = arg;
    size_t length = strlen(told->text);
    snprintf(told->text + length, sizeof(told->text) - length, "%s:%s ", kind,
             info ? info->name : "-");
    told->synced = told->synced || strcmp(kind, "synced") == 0;
    told->deleted = told->deleted || strcmp(kind, "deleted") == 0;
}

void put_counting(struct gpubuf_client *client, const char *name, size_t bytes, unsigned first)
{
    unsigned char *data = malloc(bytes + 1);
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(first + i);
    check_result(client, gpubuf_put_bytes(client, name, data, bytes, &options), 0, __FILE__,
                 __LINE__);
    free(data);
}

/* ---- the fake daemon ---- */

bool fake_read(int fd, char *line, size_t size)
{
    size_t length = 0;
    while (length + 1 < size) {
        ssize_t n = read(fd, line + length, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        if (line[length] == '\n') {
            line[length] = '\0';
            return true;
        }
        length++;
    }
    return false;
}

void fake_send(int fd, const char *text, const int *fds, unsigned count)
{
    struct iovec vector = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } control;
    if (count) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    while (vector.iov_len > 0) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0)
            return;
        vector.iov_base = (char *)vector.iov_base + n;
        vector.iov_len -= (size_t)n;
        message.msg_control = NULL;
        message.msg_controllen = 0;
    }
}

void fake_reply(int fd, const char *line, const char *text, const int *fds, unsigned count)
{
    const char *id = strstr(line, "\"id\":");
    const char *place = strstr(text, "ID");
    size_t size = strlen(text) + 64;
    char *message = malloc(size);
    if (id && place)
        snprintf(message, size, "%.*s%llu%s\n", (int)(place - text), text,
                 strtoull(id + 5, NULL, 10), place + 2);
    else
        snprintf(message, size, "%s\n", text);
    fake_send(fd, message, fds, count);
    free(message);
}

int fake_memfd(size_t bytes, int value, int seals)
{
    int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return -1;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) {
        memset(memory, value, bytes);
        munmap(memory, bytes);
    }
    if (seals && fcntl(fd, F_ADD_SEALS, seals) < 0)
        return -1;
    return fd;
}

static void serve(int listener, bool greet, fake_script script, const void *arg)
{
    char line[65536];
    /* cppcheck-suppress nullPointer ; accept4 takes NULL */
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        _exit(1);
    close(listener);
    if (greet && fake_read(fd, line, sizeof(line)))
        fake_reply(fd, line,
                   "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"protocol\":1,\"server\":\"fake\","
                   "\"instance\":\"fa4e\",\"session\":7,\"devices\":[],\"limits\":{}}}",
                   NULL, 0);
    script(fd, arg);
    _exit(0);
}

void fake_start(struct fake *fake, bool greet, fake_script script, const void *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(fake->directory, "/tmp/gpubuf-fake.XXXXXX");
    assert_non_null(mkdtemp(fake->directory));
    snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->directory);
    strcpy(address.sun_path, fake->path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    fake->pid = fork();
    assert_true(fake->pid >= 0);
    if (fake->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, greet, script, arg);
    }
    close(listener);
}

void fake_stop(struct fake *fake)
{
    kill(fake->pid, SIGKILL);
    waitpid(fake->pid, NULL, 0);
    unlink(fake->path);
    rmdir(fake->directory);
}

struct gpubuf_client *fake_connect(const struct fake *fake)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = fake->path,
        .timeout_ms = PATIENCE_MS,
        .answer_timeout_ms = PATIENCE_MS,
        .resume_ms = GPUBUF_NO_RESUME, /* it accepts once */
    };
    struct gpubuf_client *client = NULL;
    check_result(NULL, gpubuf_connect(&client, &options), 0, __FILE__, __LINE__);
    return client;
}
