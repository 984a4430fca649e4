/* The processes of closer.h. They share the daemon's descriptors and a struct gb_helpers, and no
   other memory. They end with the daemon. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/serve/closer.h"

#define FIRST_FD 3
#define TICK_US 1000
#define RESTART_NS 10000000  /* closers that are killed again and again are started no faster */
#define RETRY_NS 100000000   /* after a fork() that failed */
#define TITLE_MOST (8 << 20) /* the most that arguments and environment take */

pid_t gb_fork_sharing(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

static void on_tick(int number)
{
}

/* Sets the title that `ps` shows, in the place of the arguments and the environment, which lie one
   after the other before the path of the program. */
static void set_title(const char *title)
{
    char *begin = program_invocation_name, *end = (char *)getauxval(AT_EXECFN);

    if (end <= begin || end - begin > TITLE_MOST)
        return;
    memset(begin, 0, (size_t)(end - begin));
    snprintf(begin, (size_t)(end - begin), "%s", title);
}

/* Ignores signals that are meant for the daemon: the process ends when its parent has ended. */
static void become_helper(pid_t parent, const char *name, int at_its_death)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct sigaction tick = {.sa_handler = on_tick}; /* no SA_RESTART */
    char title[32];

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    sigaction(SIGALRM, &tick, NULL);
    snprintf(title, sizeof(title), "gpubufd: %s", name);
    set_title(title);
    snprintf(title, sizeof(title), "gpubufd-%s", name);
    prctl(PR_SET_PDEATHSIG, at_its_death);
    if (getppid() != parent)
        _exit(0);
    prctl(PR_SET_NAME, title); /* last: it tells that the process ends with its parent */
}

static void report(int reports_fd, enum gb_report_kind kind, unsigned hand, int value)
{
    const struct gb_report report = {.kind = kind, .hand = hand, .value = value};
    ssize_t n;

    do {
        n = write(reports_fd, &report, sizeof(report));
    } while (n < 0 && errno == EINTR);
}

/* A timer whose signal interrupts close(). The wait of a lingering socket can be interrupted; the
   kernel then continues in the background. */
static void set_tick(bool on)
{
    struct itimerval every = {{0, on ? TICK_US : 0}, {0, on ? TICK_US : 0}};

    setitimer(ITIMER_REAL, &every, NULL);
}

static void close_ticking(int fd)
{
    set_tick(true);
    close(fd); /* frees the number even if it is interrupted */
    set_tick(false);
}

_Noreturn static void run_closer(pid_t sweeper, struct gb_helpers *helpers, unsigned hand,
                                 int reports_fd)
{
    become_helper(sweeper, "closer", SIGKILL);
    for (;;) {
        int fd;

        while (sem_wait(&helpers->hands[hand].given) < 0) {
        }
        fd = helpers->hands[hand].fd;
        close_ticking(fd);
        report(reports_fd, GB_REPORT_CLOSED, hand, fd);
    }
}

/* ---- the sweeper ---- */

enum round { HANG_UP, CLOSE, LEAVE };

static int option_of(int fd, int option)
{
    socklen_t length = sizeof(int);
    int value = -1;

    return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

/* The rounds of the sweeper: it hangs up connections, then closes descriptors that cannot block
   (sockets, also those that clients have sent, and memory), and at last the channel to a
   supervisor, which waits for that. */
static void sweep_one(int fd, enum round round)
{
    bool is_socket = option_of(fd, SO_TYPE) >= 0,
         channel = option_of(fd, SO_TYPE) == SOCK_SEQPACKET;

    if (round == HANG_UP && !channel && option_of(fd, SO_DOMAIN) == AF_UNIX &&
        option_of(fd, SO_ACCEPTCONN) == 0)
        shutdown(fd, SHUT_RDWR);
    if (round == CLOSE && !channel && (is_socket || fcntl(fd, F_GET_SEALS) >= 0))
        close_ticking(fd);
    if (round == LEAVE && channel)
        close_ticking(fd);
}

static void sweep_all(enum round round)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (all && (entry = readdir(all))) {
        int fd = atoi(entry->d_name);

        if (fd >= FIRST_FD && fd != dirfd(all))
            sweep_one(fd, round);
    }
    /* Somebody may wait for the end of the daemon's output. */
    for (int fd = 0; round == LEAVE && fd < FIRST_FD; fd++)
        close_ticking(fd);
}

/* Starts the closers that the daemon asks for. */
static bool start_closers(pid_t *closers, struct gb_helpers *helpers, int reports_fd)
{
    pid_t sweeper = getpid();

    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        if (!helpers->hands[i].is_asked)
            continue;
        closers[i] = gb_fork_sharing();
        if (closers[i] == 0)
            run_closer(sweeper, helpers, i, reports_fd);
        if (closers[i] < 0) {
            report(reports_fd, GB_REPORT_FAILED, i, errno);
            closers[i] = 0;
            return false;
        }
        helpers->hands[i].is_asked = false;
    }
    return true;
}

static void bury_closers(pid_t *closers, int reports_fd)
{
    const struct timespec moment = {.tv_nsec = RESTART_NS};
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (unsigned i = 0; i < GB_CLOSERS; i++)
            if (closers[i] == pid) {
                closers[i] = 0;
                nanosleep(&moment, NULL);
                report(reports_fd, GB_REPORT_DIED, i, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            }
}

/* Ends them, but for those that are stuck in a close(), which end when that returns. */
static void kill_closers(const pid_t *closers)
{
    for (unsigned i = 0; i < GB_CLOSERS; i++)
        if (closers[i] > 0)
            kill(closers[i], SIGKILL);
}

/* A closer that is stuck keeps all descriptors of the dead daemon open. */
_Noreturn static void clean_up(const struct gb_helpers *helpers)
{
    if (helpers->listener >= 0)
        shutdown(helpers->listener, SHUT_RDWR);
    sweep_all(HANG_UP);
    sweep_all(CLOSE);
    for (unsigned i = 0; i < GB_CLOSER_LOCKS; i++)
        if (helpers->locks[i] >= 0)
            flock(helpers->locks[i], LOCK_UN);
    sweep_all(LEAVE);
    _exit(0);
}

void gb_sweeper_run(pid_t daemon, struct gb_helpers *helpers, int reports_fd)
{
    const struct timespec retry = {.tv_nsec = RETRY_NS};
    pid_t closers[GB_CLOSERS] = {0};
    sigset_t awaited;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR1); /* the daemon's death */
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, GB_HELPER_WAKES);
    become_helper(daemon, "sweeper", SIGUSR1);
    sigprocmask(SIG_SETMASK, &awaited, NULL);
    while (getppid() == daemon && !helpers->ends) {
        if (start_closers(closers, helpers, reports_fd))
            sigwaitinfo(&awaited, NULL);
        else
            sigtimedwait(&awaited, NULL, &retry);
        bury_closers(closers, reports_fd);
    }
    kill_closers(closers);
    if (!helpers->ends)
        clean_up(helpers);
    while (wait(NULL) > 0) {
    }
    _exit(0);
}
