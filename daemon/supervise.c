#include "daemon/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/listener.h"
#include "daemon/base/log.h"
#include "daemon/survive/notify.h"
#include "proto/base/list.h"

#define FIRST_FD 3
#define OWN_FDS 2 /* descriptors that each child gets before the kept ones */
#define OWN_NAMES "gpubufd.socket:" GB_NOTIFY_CHANNEL
#define MESSAGE_BYTES 4096
#define MESSAGE_FDS 253 /* what the kernel lets through at once */
#define NOT_STARTED 2   /* the daemon's exit status if its options are wrong */
#define PAUSE_MIN_MS 50 /* before the start after one that was never ready; doubled each time */
#define PAUSE_MAX_MS 5000
#define REMAINS_MS 2000 /* for the closers of a daemon that has ended */
#define REAP_MS 50      /* of that, before the next start, for those that have closed all */
#define LATE_MS 1000    /* after the end of a wait, at which this process was stopped meanwhile */
#define STOP_MS 20000   /* for a daemon to end by itself before it is killed */
#define NAME_BYTES 256
#define NAME_TYPICAL 7         /* bytes of a segment's name with its colon: up to 60 million */
#define OPEN_OWN 32            /* descriptors that are not kept */
#define NAMES_MAX (120u << 10) /* of all names in one variable: the kernel takes 128 KiB */

struct kept {
    struct gb_link link;
    int fd;
    char name[NAME_BYTES];
};

struct supervisor {
    const struct gb_config *config;
    char **arguments; /* of the daemon: this program's without --supervise; owned */
    char program[4096];
    struct gb_listener listener;
    int signal_fd;
    int notify_fd; /* our end of the socket pair that the child sends on; -1: none runs */
    sigset_t signals_before;
    struct gb_link kept; /* struct kept */
    unsigned stored_count;
    size_t name_bytes;

    pid_t child; /* 0: none runs */
    int64_t started_ms, heard_ms;
    int64_t start_at;       /* when to start the next child; -1: when asked */
    int64_t kill_at;        /* when to kill the child; -1: not at all */
    unsigned failures;      /* in a row */
    bool ready, ready_once; /* this child was ready; any child was */
    bool hung_up;           /* the child has closed its end, and ends */
    bool stopping;
    int status; /* to exit with */
};

/* Signed, since -1 is a time that never comes. */
static int64_t now_ms(void)
{
    return (int64_t)gb_now_ms();
}

/* ---- what is kept ---- */

/* Takes `fd` over. */
static void store_fd(struct supervisor *supervisor, const char *name, int fd)
{
    struct kept *kept = calloc(1, sizeof(*kept));
    bool fits = supervisor->name_bytes + strlen(name) + 1 <= NAMES_MAX;

    if (!kept || !fits) {
        gb_log(GB_LOG_ERROR, "descriptor not stored", GB_LOG_TEXT("name", name),
               GB_LOG_TEXT("why", fits ? "out of memory" : "too many are kept already"));
        close(fd);
        free(kept);
        return;
    }
    supervisor->name_bytes += strlen(name) + 1;
    kept->fd = fd;
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    gb_list_append(&supervisor->kept, &kept->link);
    supervisor->stored_count++;
}

/* Closes all descriptors of that name; NULL: of every name. */
static void forget(struct supervisor *supervisor, const char *name)
{
    GB_LIST_EACH(&supervisor->kept, struct kept, kept, link) {
        if (name && strcmp(kept->name, name) != 0)
            continue;
        gb_list_remove(&kept->link);
        supervisor->name_bytes -= strlen(kept->name) + 1;
        close(kept->fd);
        free(kept);
        supervisor->stored_count--;
    }
}

/* ---- messages ---- */

struct message {
    char text[MESSAGE_BYTES + 1];
    int fds[MESSAGE_FDS];
    unsigned fd_count;
};

/* Receives one; false if there is none. */
static bool receive(int fd, struct message *message)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
    } control;
    struct iovec vector = {message->text, MESSAGE_BYTES};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (length <= 0)
        return false;
    message->text[length] = '\0';
    message->fd_count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
        size_t bytes = part->cmsg_len - CMSG_LEN(0);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(message->fds + message->fd_count, CMSG_DATA(part), bytes);
        message->fd_count += (unsigned)(bytes / sizeof(int));
    }
    return true;
}

/* The value of the message's line NAME=…; NULL if it has none. */
static const char *find_line(const struct message *message, const char *name, char *value,
                             size_t size)
{
    size_t length = strlen(name);
    const char *line = message->text;

    while (*line) {
        size_t end = strcspn(line, "\n");

        if (end > length && strncmp(line, name, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%.*s", (int)(end - length - 1), line + length + 1);
            return value;
        }
        line += end + (line[end] == '\n');
    }
    return NULL;
}

static bool says(const struct message *message, const char *name)
{
    char value[8];

    return find_line(message, name, value, sizeof(value)) && strcmp(value, "1") == 0;
}

static void handle_message(struct supervisor *supervisor, struct message *message)
{
    char name[NAME_BYTES];

    if (says(message, "FDSTORE")) {
        if (!find_line(message, "FDNAME", name, sizeof(name)))
            strcpy(name, "stored");
        for (unsigned i = 0; i < message->fd_count; i++)
            store_fd(supervisor, name, message->fds[i]);
        message->fd_count = 0;
    }
    if (says(message, "FDSTOREREMOVE") && find_line(message, "FDNAME", name, sizeof(name)))
        forget(supervisor, name);
    if (says(message, "WATCHDOG") || find_line(message, "EXTEND_TIMEOUT_USEC", name, sizeof(name)))
        supervisor->heard_ms = now_ms();
    if (says(message, "STOPPING") && supervisor->kill_at < 0)
        supervisor->kill_at = now_ms() + STOP_MS;
    if (says(message, "X_FOR_GOOD"))
        supervisor->stopping = true;
    if (says(message, "READY")) {
        supervisor->heard_ms = now_ms();
        supervisor->ready = supervisor->ready_once = true;
    }
    for (unsigned i = 0; i < message->fd_count; i++)
        close(message->fds[i]);
}

static void receive_messages(struct supervisor *supervisor)
{
    static struct message message;

    while (receive(supervisor->notify_fd, &message))
        handle_message(supervisor, &message);
}

/* ---- the child ---- */

/* The descriptors handed over, as the child has them. */
struct placing {
    unsigned count;
    int *fds;         /* where each is */
    unsigned *places; /* by descriptor: 1 + which of them it is; 0: none */
};

static bool placing_begin(struct placing *placing, const struct supervisor *supervisor,
                          int notify_fd)
{
    unsigned i = OWN_FDS;
    int last;

    placing->count = supervisor->stored_count + OWN_FDS;
    last = FIRST_FD + (int)placing->count;
    placing->fds = calloc(placing->count, sizeof(*placing->fds));
    if (!placing->fds)
        return false;
    placing->fds[0] = supervisor->listener.fd;
    placing->fds[1] = notify_fd;
    GB_LIST_EACH(&supervisor->kept, const struct kept, kept, link)
        placing->fds[i++] = kept->fd;
    for (i = 0; i < placing->count; i++)
        last = placing->fds[i] > last ? placing->fds[i] : last;
    placing->places = calloc((size_t)last + 1, sizeof(*placing->places));
    for (i = 0; placing->places && i < placing->count; i++)
        placing->places[placing->fds[i]] = i + 1;
    return placing->places;
}

/* Moves a descriptor to the number at which the child expects it. Another one of ours with that
   number takes the former number. */
static bool place_fd(struct placing *placing, unsigned i)
{
    int from = placing->fds[i], to = FIRST_FD + (int)i, spare;
    unsigned other = placing->places[to];

    if (from == to)
        return fcntl(to, F_SETFD, 0) == 0;
    placing->places[from] = other;
    if (!other)
        return dup2(from, to) >= 0 && close(from) == 0;
    placing->fds[other - 1] = from;
    spare = fcntl(from, F_DUPFD_CLOEXEC, FIRST_FD);
    return spare >= 0 && dup2(to, from) >= 0 && dup2(spare, to) >= 0 && close(spare) == 0;
}

/* In the child: moves all descriptors that are handed over to the numbers at which they are
   expected. One free number is enough. The process ends or executes, so nothing is freed. */
static bool place_fds(const struct supervisor *supervisor, int notify_fd)
{
    struct placing placing;

    close(supervisor->signal_fd); /* its number is the free one */
    if (!placing_begin(&placing, supervisor, notify_fd))
        return false;
    for (unsigned i = 0; i < placing.count; i++)
        if (!place_fd(&placing, i))
            return false;
    return true;
}

static bool set_number(const char *variable, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return setenv(variable, text, 1) == 0;
}

/* How many descriptors can be kept: as many as may be open, and as have names that fit together. */
static uint64_t most_kept(void)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur > NAMES_MAX / NAME_TYPICAL)
        return NAMES_MAX / NAME_TYPICAL;
    return limit.rlim_cur > OPEN_OWN ? limit.rlim_cur - OPEN_OWN : 1;
}

static bool set_environment(const struct supervisor *supervisor)
{
    size_t bytes = sizeof(OWN_NAMES);
    char *names, *end;

    GB_LIST_EACH(&supervisor->kept, const struct kept, kept, link)
        bytes += strlen(kept->name) + 1;
    names = malloc(bytes);
    if (!names)
        return false;
    end = stpcpy(names, OWN_NAMES);
    GB_LIST_EACH(&supervisor->kept, const struct kept, kept, link) {
        *end++ = ':';
        end = stpcpy(end, kept->name);
    }
    return unsetenv("NOTIFY_SOCKET") == 0 && setenv("LISTEN_FDNAMES", names, 1) == 0 &&
           set_number("LISTEN_PID", (uint64_t)getpid()) &&
           set_number("LISTEN_FDS", supervisor->stored_count + OWN_FDS) &&
           set_number("WATCHDOG_PID", (uint64_t)getpid()) &&
           set_number("WATCHDOG_USEC", supervisor->config->watchdog_ms * 1000) &&
           set_number("FDSTORE", most_kept()) && unsetenv("LISTEN_PIDFDID") == 0;
}

static _Noreturn void run_child(const struct supervisor *supervisor, int notify_fd)
{
    sigprocmask(SIG_SETMASK, &supervisor->signals_before, NULL);
    if (place_fds(supervisor, notify_fd) && set_environment(supervisor))
        execv(supervisor->program, supervisor->arguments);
    fprintf(stderr, "gpubufd: cannot start %s: %s\n", supervisor->program, strerror(errno));
    _exit(127);
}

/* The child gets one of a pair of sockets. Other processes could send descriptors to a socket with
   a name, and closing these may block. */
static pid_t fork_child(struct supervisor *supervisor)
{
    int ends[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return -1;
    pid = fork();
    if (pid == 0)
        run_child(supervisor, ends[1]);
    close(ends[1]);
    if (pid < 0)
        close(ends[0]);
    else
        supervisor->notify_fd = ends[0];
    supervisor->hung_up = false;
    return pid;
}

static void start(struct supervisor *supervisor)
{
    pid_t pid = fork_child(supervisor);

    supervisor->start_at = supervisor->kill_at = -1;
    supervisor->started_ms = supervisor->heard_ms = now_ms();
    if (pid < 0) {
        gb_log(GB_LOG_ERROR, "daemon not started", GB_LOG_TEXT("why", strerror(errno)));
        supervisor->start_at = now_ms() + PAUSE_MAX_MS;
        return;
    }
    supervisor->child = pid;
    supervisor->ready = false;
    gb_log(GB_LOG_INFO, "daemon started", GB_LOG_NUMBER("pid", pid),
           GB_LOG_NUMBER("descriptors", supervisor->stored_count));
}

/* How long to wait before the next start. */
static int64_t pause_of(const struct supervisor *supervisor)
{
    unsigned doubled = supervisor->failures > 8 ? 8 : supervisor->failures;
    int64_t pause = doubled ? (int64_t)PAUSE_MIN_MS << (doubled - 1) : 0;

    return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

/* Waits for the child's closers, which share its descriptors and end after it: until then they may
   hold a lock that the next child needs. Reaps them, and leaves alone what cannot end. */
static void end_remains(struct supervisor *supervisor)
{
    int64_t until = now_ms() + REMAINS_MS, now;
    struct pollfd polled = {.fd = supervisor->notify_fd};
    struct timespec moment = {.tv_nsec = 1000000};

    poll(&polled, 1, REMAINS_MS); /* without POLLIN: until the other end is closed */
    close(supervisor->notify_fd);
    supervisor->notify_fd = -1;
    now = now_ms();
    if (!supervisor->stopping && until > now + REAP_MS)
        until = now + REAP_MS;
    while (waitpid(-1, NULL, WNOHANG) >= 0 && now_ms() < until)
        nanosleep(&moment, NULL); /* they have closed everything, and are about to end */
}

static void note_end(struct supervisor *supervisor, int status)
{
    bool exited = WIFEXITED(status);

    receive_messages(supervisor); /* that it sent before its end */
    supervisor->child = 0;
    end_remains(supervisor);
    gb_log(exited && WEXITSTATUS(status) == 0 ? GB_LOG_INFO : GB_LOG_WARNING, "daemon ended",
           GB_LOG_NUMBER(exited ? "status" : "signal",
                         exited ? WEXITSTATUS(status) : WTERMSIG(status)));
    if (supervisor->stopping || (exited && !supervisor->ready_once)) {
        /* A daemon with wrong options says so itself, and would say it every time. */
        supervisor->stopping = true;
        supervisor->status = exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return;
    }
    if (supervisor->ready)
        supervisor->failures = 0;
    supervisor->start_at = now_ms() + pause_of(supervisor);
    supervisor->failures++;
}

/* Closers that end late are reaped here, too. */
static void reap(struct supervisor *supervisor)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == supervisor->child)
            note_end(supervisor, status);
}

/* ---- signals and times ---- */

static void signal_child(struct supervisor *supervisor, int number)
{
    if (supervisor->child > 0)
        kill(supervisor->child, number);
}

static void on_signal(struct supervisor *supervisor, int number)
{
    switch (number) {
    case SIGCHLD:
        reap(supervisor);
        break;
    case SIGHUP: /* the child hands over, unless that would cost objects; the next one is started
                    from the file as it is then */
        supervisor->failures = 0;
        signal_child(supervisor, SIGHUP);
        break;
    default:
        gb_log(GB_LOG_INFO, "stopping", GB_LOG_TEXT("signal", strsignal(number)));
        supervisor->stopping = true;
        supervisor->kill_at = now_ms() + STOP_MS;
        signal_child(supervisor, SIGINT); /* to the daemon: end for good, without a successor */
    }
}

static void handle_signals(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;

    while (read(supervisor->signal_fd, &info, sizeof(info)) == sizeof(info))
        on_signal(supervisor, (int)info.ssi_signo);
}

/* Kills or starts the daemon if that is due. Returns how long to wait, as poll() takes it. */
static int do_due(struct supervisor *supervisor)
{
    int64_t now = now_ms(), next = -1;

    if (supervisor->child > 0) {
        next = supervisor->heard_ms + (int64_t)supervisor->config->watchdog_ms;
        if (supervisor->kill_at >= 0 && supervisor->kill_at < next)
            next = supervisor->kill_at;
        if (now >= next) {
            gb_log(GB_LOG_ERROR, "daemon killed",
                   GB_LOG_TEXT("why",
                               supervisor->kill_at >= 0 ? "it does not end" : "no sign of life"));
            kill(supervisor->child, supervisor->kill_at >= 0 ? SIGKILL : SIGABRT);
            supervisor->heard_ms = now;
            supervisor->kill_at = now + STOP_MS / 10;
            next = supervisor->kill_at;
        }
    } else if (!supervisor->stopping) {
        next = supervisor->start_at;
        if (now >= next) {
            start(supervisor);
            return 0;
        }
    }
    return next < 0 ? -1 : (int)(next - now);
}

static void run(struct supervisor *supervisor)
{
    while (!supervisor->stopping || supervisor->child > 0) {
        int timeout = do_due(supervisor);
        int64_t until = now_ms() + timeout;
        struct pollfd polled[2] = {
            {.fd = supervisor->hung_up ? -1 : supervisor->notify_fd, .events = POLLIN},
            {.fd = supervisor->signal_fd, .events = POLLIN}};

        poll(polled, 2, timeout);
        if (timeout >= 0 && now_ms() > until + LATE_MS)
            supervisor->heard_ms = now_ms(); /* this process was stopped, and has heard nobody */
        receive_messages(supervisor);
        supervisor->hung_up |= (polled[0].revents & (POLLIN | POLLHUP)) == POLLHUP;
        handle_signals(supervisor);
    }
}

/* ---- beginning and end ---- */

static int open_signals(struct supervisor *supervisor, struct gb_error *error)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &supervisor->signals_before);
    supervisor->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return supervisor->signal_fd < 0 ? gb_fail_errno(error, "signalfd") : 0;
}

/* Sets the daemon's arguments, and the path of this program's file: a later start executes the file
   that has this path then. This process executes itself once more, by the name that `ps` shows. */
static int set_command(struct supervisor *supervisor, char **argv, struct gb_error *error)
{
    static char own_name[] = "gpubufd: supervisor", daemon_name[] = "gpubufd: daemon";
    ssize_t length = readlink("/proc/self/exe", supervisor->program, sizeof(supervisor->program));
    size_t count = 0, kept = 0;

    if (length < 0 || (size_t)length >= sizeof(supervisor->program))
        return gb_fail_errno(error, "/proc/self/exe");
    supervisor->program[length] = '\0';
    if (strcmp(argv[0], own_name) != 0) {
        argv[0] = own_name;
        execv(supervisor->program, argv); /* else it keeps its former name */
    }
    while (argv[count])
        count++;
    supervisor->arguments = calloc(count + 1, sizeof(char *));
    if (!supervisor->arguments)
        return gb_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        if (strcmp(argv[i], "--supervise") != 0)
            supervisor->arguments[kept++] = i == 0 ? daemon_name : argv[i];
    return 0;
}

static void raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void destroy(struct supervisor *supervisor)
{
    forget(supervisor, NULL);
    gb_listener_close(&supervisor->listener);
    if (supervisor->notify_fd >= 0)
        close(supervisor->notify_fd);
    if (supervisor->signal_fd >= 0)
        close(supervisor->signal_fd);
    free((void *)supervisor->arguments);
}

int gb_supervise(const struct gb_config *config, char **argv)
{
    struct supervisor supervisor = {.config = config,
                                    .listener = {.fd = -1, .lock_fd = -1},
                                    .notify_fd = -1,
                                    .signal_fd = -1,
                                    .kill_at = -1};
    struct gb_error error;
    int r;

    r = set_command(&supervisor, argv, &error);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* a dead daemon's closers are ours to reap */
    raise_limit();
    if (r == 0)
        r = gb_listener_open(&supervisor.listener, config->socket, config->mode, &error);
    if (r == 0)
        r = open_signals(&supervisor, &error);
    if (r == 0) {
        run(&supervisor);
    } else {
        fprintf(stderr, "gpubufd: %s\n", error.message);
        supervisor.status = NOT_STARTED;
    }
    destroy(&supervisor);
    return supervisor.status;
}
