/* The processes of closer.h. They share the daemon's descriptors but not its memory, and end with
   the daemon. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "daemon/serve/closer.h"

#define FIRST_FD 3
#define TICK_US 1000

static void on_tick(int number)
{
    (void)number;
}

/* Ignores signals that are meant for the daemon: the process ends when the daemon has ended. */
static void become_helper(pid_t daemon, const char *name, int at_its_death)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct sigaction tick = {.sa_handler = on_tick}; /* no SA_RESTART */

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    sigaction(SIGALRM, &tick, NULL);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_PDEATHSIG, at_its_death);
    if (getppid() != daemon)
        _exit(0);
}

/* A timer whose signal interrupts close(). The wait of a lingering socket can be interrupted; the
   kernel then goes on in the background. */
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

void gb_closer_run(pid_t daemon, int closings_fd, int closed_fd)
{
    struct gb_closing closing;
    ssize_t n;

    become_helper(daemon, "gpubufd-closer", SIGKILL);
    for (;;) {
        n = read(closings_fd, &closing, sizeof(closing));
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(closing))
            _exit(0);
        close_ticking(closing.fd);
        do {
            n = write(closed_fd, &closing.hand, sizeof(closing.hand));
        } while (n < 0 && errno == EINTR);
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

/* Waits for the daemon's death, and cleans up: a closer that is stuck keeps all descriptors of the
   dead daemon open. */
void gb_sweeper_run(pid_t daemon, const struct gb_sweep *sweep)
{
    sigset_t death;
    int number = 0;

    sigemptyset(&death);
    sigaddset(&death, SIGUSR1);
    sigprocmask(SIG_BLOCK, &death, NULL);
    become_helper(daemon, "gpubufd-sweeper", SIGUSR1);
    do {
        sigwait(&death, &number);
    } while (getppid() == daemon);
    if (sweep->listener >= 0)
        shutdown(sweep->listener, SHUT_RDWR);
    sweep_all(HANG_UP);
    sweep_all(CLOSE);
    for (unsigned i = 0; i < GB_CLOSER_LOCKS; i++)
        if (sweep->locks[i] >= 0)
            flock(sweep->locks[i], LOCK_UN);
    sweep_all(LEAVE);
    _exit(0);
}
