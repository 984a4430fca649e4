#include "daemon/serve/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"

#define SMALL_BYTES (1 << 20) /* the largest memfd whose pages the loop frees itself */
#define DRAIN_BYTES 4096
#define DRAIN_TIMES 16
#define STOP_MS 500 /* for what is still to be closed when the daemon ends */
#define END_MS 10000

#ifdef GB_NO_CLOSERS
#define HAS_CLOSERS false
#else
#define HAS_CLOSERS true
#endif

struct gb_closer {
    int reports[2]; /* a pipe from the processes; our end does not block */
    pid_t sweeper;  /* 0: none */
    int sweeper_fd; /* a pidfd; -1: none */
    struct gb_helpers *helpers;
    uv_poll_t poll, sweeper_poll;
    bool polled;
    struct {
        struct gb_foreign *foreign; /* the queue of the one being closed; NULL: it was forgotten */
        int fd;                     /* -1: none is being closed */
    } hands[GB_CLOSERS];
    unsigned busy;          /* hands with a descriptor */
    struct gb_link waiting; /* other struct gb_foreign with descriptors */
    struct gb_foreign nobodys;
};

/* ---- the processes ---- */

static void ask_sweeper(const struct gb_closer *closer)
{
    if (closer->sweeper > 0)
        kill(closer->sweeper, GB_HELPER_WAKES);
}

/* The child does not run the loop's signal handlers, since signals are blocked. */
static bool start_sweeper(struct gb_closer *closer)
{
    pid_t daemon = getpid(), pid;
    sigset_t all, before;

    for (unsigned i = 0; i < GB_CLOSERS; i++)
        closer->helpers->hands[i].is_asked = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = gb_fork_sharing();
    if (pid == 0)
        gb_sweeper_run(daemon, closer->helpers, closer->reports[1]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return false;
    closer->sweeper = pid;
    closer->sweeper_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return true;
}

static bool make_pipe(struct gb_closer *closer)
{
    return pipe2(closer->reports, O_CLOEXEC) == 0 &&
           fcntl(closer->reports[0], F_SETFL, O_NONBLOCK) == 0;
}

static bool share_memory(struct gb_closer *closer)
{
    struct gb_helpers *helpers =
        mmap(NULL, sizeof(*helpers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (helpers == MAP_FAILED)
        return false;
    closer->helpers = helpers;
    for (unsigned i = 0; i < GB_CLOSER_LOCKS; i++)
        helpers->locks[i] = -1;
    helpers->listener = -1;
    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        sem_init(&helpers->hands[i].given, 1, 0);
        closer->hands[i].fd = -1;
    }
    return true;
}

int gb_closer_new(struct gb_closer **out, struct gb_error *error)
{
    struct gb_closer *closer;
    int r = 0;

    *out = NULL;
    if (!HAS_CLOSERS)
        return 0;
    closer = calloc(1, sizeof(*closer));
    if (!closer)
        return gb_fail_memory(error);
    closer->reports[0] = closer->reports[1] = closer->sweeper_fd = -1;
    if (!share_memory(closer))
        r = gb_fail_errno(error, "cannot share memory with the closer");
    else if (!make_pipe(closer) || !start_sweeper(closer))
        r = gb_fail_errno(error, "cannot start the closer's processes");
    if (r < 0)
        gb_closer_end(closer);
    else
        *out = closer;
    return r;
}

/* ---- queues ---- */

static bool put_in_queue(struct gb_foreign *foreign, int fd)
{
    if (foreign->first > 0 && foreign->first + foreign->count == foreign->capacity) {
        memmove(foreign->fds, foreign->fds + foreign->first, foreign->count * sizeof(int));
        foreign->first = 0;
    }
    if (foreign->first + foreign->count == foreign->capacity) {
        unsigned capacity = foreign->capacity ? 2 * foreign->capacity : 16;
        int *fds = realloc(foreign->fds, capacity * sizeof(int));

        if (!fds)
            return false;
        foreign->fds = fds;
        foreign->capacity = capacity;
    }
    foreign->fds[foreign->first + foreign->count++] = fd;
    return true;
}

static int receive_queued(struct gb_foreign *foreign)
{
    int fd = foreign->fds[foreign->first++];

    if (--foreign->count == 0)
        foreign->first = 0;
    return fd;
}

static unsigned free_hand(const struct gb_closer *closer)
{
    unsigned hand = 0;

    while (closer->hands[hand].fd >= 0)
        hand++;
    return hand;
}

static void fill_hand(struct gb_closer *closer, unsigned hand)
{
    closer->helpers->hands[hand].fd = closer->hands[hand].fd;
    sem_post(&closer->helpers->hands[hand].given);
}

/* Hands descriptors to the closers: one of each queue, in turn (round robin). All our descriptors
   but those in a hand have FD_CLOEXEC: is_still_open() relies on that. */
static void hand_out(struct gb_closer *closer)
{
    while (closer->busy < GB_CLOSERS && !gb_list_empty(&closer->waiting)) {
        struct gb_foreign *foreign =
            GB_CONTAINER(closer->waiting.next, struct gb_foreign, of_closer);
        unsigned hand = free_hand(closer);

        gb_list_remove(&foreign->of_closer);
        closer->hands[hand].foreign = foreign;
        closer->hands[hand].fd = receive_queued(foreign);
        fcntl(closer->hands[hand].fd, F_SETFD, 0);
        closer->busy++;
        foreign->in_hand = true;
        fill_hand(closer, hand);
    }
}

/* Releases a queue that is empty, and its reference to the user, which may be the last. */
static void let_go(struct gb_foreign *foreign)
{
    struct gb_user *user = foreign->charge.user;

    if (foreign->count > 0 || foreign->in_hand)
        return;
    free(foreign->fds);
    *foreign = (struct gb_foreign){0};
    gb_user_unref(user);
}

static void recount(struct gb_foreign *foreign)
{
    gb_charge_set(&foreign->charge, GB_HELD_FDS, (uint64_t)foreign->count + foreign->in_hand);
}

static void is_closed(struct gb_closer *closer, unsigned hand)
{
    struct gb_foreign *foreign = closer->hands[hand].foreign;

    closer->hands[hand].foreign = NULL;
    closer->hands[hand].fd = -1;
    closer->busy--;
    if (!foreign)
        return; /* gb_closer_stop() has forgotten it */
    foreign->in_hand = false;
    recount(foreign);
    if (foreign->count > 0)
        gb_list_append(&closer->waiting, &foreign->of_closer);
    let_go(foreign);
}

/* Whether the closer of that hand died before it closed the descriptor. Afterwards the number is
   free, or that of another: one with FD_CLOEXEC, or one in another hand. */
static bool is_still_open(const struct gb_closer *closer, unsigned hand)
{
    int fd = closer->hands[hand].fd, flags = fcntl(fd, F_GETFD);

    for (unsigned i = 0; i < GB_CLOSERS; i++)
        if (i != hand && closer->hands[i].fd == fd)
            return false;
    return flags >= 0 && !(flags & FD_CLOEXEC);
}

/* No closer of that hand is alive, and none is started before it is asked for. */
static void has_died(struct gb_closer *closer, unsigned hand)
{
    sem_init(&closer->helpers->hands[hand].given, 1, 0);
    if (closer->hands[hand].fd >= 0 && is_still_open(closer, hand))
        fill_hand(closer, hand);
    else if (closer->hands[hand].fd >= 0)
        is_closed(closer, hand);
    closer->helpers->hands[hand].is_asked = true;
}

static void hear_one(struct gb_closer *closer, const struct gb_report *report)
{
    switch (report->kind) {
    case GB_REPORT_CLOSED:
        if (closer->hands[report->hand].fd == report->value)
            is_closed(closer, report->hand);
        break;
    case GB_REPORT_DIED:
        gb_log_limited(GB_LOG_WARNING, GB_NOBODY, "closer ended: another is started",
                       GB_LOG_TEXT("signal", strsignal(report->value)));
        has_died(closer, report->hand);
        ask_sweeper(closer);
        break;
    case GB_REPORT_FAILED:
        gb_log_limited(GB_LOG_ERROR, GB_NOBODY, "closer not started: tries again",
                       GB_LOG_TEXT("why", strerror(report->value)));
    }
}

static void hear(struct gb_closer *closer)
{
    struct gb_report report;

    while (read(closer->reports[0], &report, sizeof(report)) == sizeof(report))
        hear_one(closer, &report);
    hand_out(closer);
}

static void on_report(uv_poll_t *handle, int status, int events)
{
    hear(handle->data);
}

static void watch_sweeper(struct gb_closer *closer);

/* A handle of libuv's is closed before it can begin anew. */
static void restart_sweeper(uv_handle_t *handle)
{
    struct gb_closer *closer = handle->data;

    close(closer->sweeper_fd);
    closer->sweeper_fd = -1;
    if (!closer->polled)
        return;
    if (start_sweeper(closer))
        watch_sweeper(closer);
    else
        gb_log(GB_LOG_ERROR, "sweeper not started", GB_LOG_TEXT("why", strerror(errno)));
}

/* The closers have ended with it (PR_SET_PDEATHSIG). */
static void on_sweeper_ended(uv_poll_t *handle, int status, int events)
{
    struct gb_closer *closer = handle->data;

    gb_log(GB_LOG_ERROR, "sweeper ended: another is started");
    waitpid(closer->sweeper, NULL, 0);
    closer->sweeper = 0;
    hear(closer);
    for (unsigned i = 0; i < GB_CLOSERS; i++)
        has_died(closer, i);
    hand_out(closer);
    uv_close((uv_handle_t *)handle, restart_sweeper);
}

static void watch_sweeper(struct gb_closer *closer)
{
    if (closer->sweeper_fd < 0 ||
        uv_poll_init(closer->poll.loop, &closer->sweeper_poll, closer->sweeper_fd) < 0)
        return;
    closer->sweeper_poll.data = closer;
    uv_poll_start(&closer->sweeper_poll, UV_READABLE, on_sweeper_ended);
}

void gb_closer_unlocks(struct gb_closer *closer, int lock_fd)
{
    unsigned i = 0;

    if (!closer)
        return;
    while (i < GB_CLOSER_LOCKS - 1 && closer->helpers->locks[i] >= 0)
        i++;
    closer->helpers->locks[i] = lock_fd;
}

void gb_closer_shuts(struct gb_closer *closer, int listener_fd)
{
    if (closer)
        closer->helpers->listener = listener_fd;
}

int gb_closer_start(struct gb_closer *closer, uv_loop_t *loop)
{
    if (!closer)
        return 0;
    if (uv_poll_init(loop, &closer->poll, closer->reports[0]) < 0)
        return GPUBUF_E_SYSTEM;
    closer->poll.data = closer;
    closer->polled = true;
    uv_poll_start(&closer->poll, UV_READABLE, on_report);
    watch_sweeper(closer);
    return 0;
}

/* ---- handing over ---- */

/* Whether it is a small memfd, which close() frees at once. fcntl() asks no file system, and that
   of a memfd answers fstat() at once. */
static bool closes_at_once(int fd)
{
    struct stat st;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && st.st_blocks <= SMALL_BYTES / 512;
}

static void hand_over(struct gb_closer *closer, struct gb_user *user, struct gb_foreign *foreign,
                      int fd)
{
    bool idle = foreign->count == 0 && !foreign->in_hand;

    if (!put_in_queue(foreign, fd)) {
        close(fd); /* which may block: that is better than a leak */
        return;
    }
    if (idle)
        foreign->charge.user = user ? gb_user_ref(user) : NULL;
    recount(foreign);
    if (!idle)
        return;
    gb_list_append(&closer->waiting, &foreign->of_closer);
    hand_out(closer);
}

void gb_close_foreign(struct gb_closer *closer, struct gb_user *user, int fd)
{
    if (!closer || closes_at_once(fd))
        close(fd);
    else
        hand_over(closer, user, user ? &gb_served(user)->received : &closer->nobodys, fd);
}

/* Reads what is left in the socket. True if no descriptors were among it. Peeking without room for
   descriptors tells of them (MSG_CTRUNC), and leaves them in the socket. */
static bool is_drained(int fd)
{
    char bytes[DRAIN_BYTES];
    struct iovec vector = {.iov_base = bytes, .iov_len = sizeof(bytes)};

    for (unsigned i = 0; i < DRAIN_TIMES; i++) {
        struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
        ssize_t n = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);

        if (n == 0)
            return true;
        if (n < 0 && errno != ECONNRESET && errno != EINTR)
            return errno == EAGAIN;
        if (n < 0)
            continue;
        if (header.msg_flags & MSG_CTRUNC)
            return false;
        if (recv(fd, bytes, (size_t)n, MSG_DONTWAIT) < 0)
            return false;
    }
    return false;
}

bool gb_closer_is_behind(const struct gb_user *user, uint64_t most)
{
    return gb_served(user)->received.count >= most;
}

bool gb_brings_descriptors(int fd, char *scratch, size_t size)
{
    struct iovec vector = {.iov_base = scratch, .iov_len = size};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};

    return recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT) > 0 && (header.msg_flags & MSG_CTRUNC);
}

void gb_close_connection(struct gb_closer *closer, struct gb_user *user, int fd)
{
    shutdown(fd, SHUT_RDWR); /* nothing more can arrive */
    if (!closer || is_drained(fd))
        close(fd);
    else
        hand_over(closer, user, user ? &gb_served(user)->ended : &closer->nobodys, fd);
}

/* ---- the end ---- */

/* Forgets a queue. Its descriptors stay open until the daemon has ended. */
static void forget(struct gb_foreign *foreign)
{
    foreign->count = 0;
    foreign->in_hand = false;
    recount(foreign);
    let_go(foreign);
}

void gb_closer_stop(struct gb_closer *closer)
{
    uint64_t until = gb_now_ms() + STOP_MS, now;

    if (!closer)
        return;
    if (closer->polled)
        uv_poll_stop(&closer->poll);
    closer->polled = false;
    hear(closer);
    while (closer->busy > 0 && (now = gb_now_ms()) < until) {
        struct pollfd entry = {.fd = closer->reports[0], .events = POLLIN};

        poll(&entry, 1, (int)(until - now));
        hear(closer);
    }
    GB_LIST_EACH(&closer->waiting, struct gb_foreign, foreign, of_closer) {
        gb_list_remove(&foreign->of_closer);
        forget(foreign);
    }
    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        if (closer->hands[i].foreign)
            forget(closer->hands[i].foreign);
        closer->hands[i].foreign = NULL;
    }
}

/* Has the sweeper end the closers and itself. If a closer is stuck, the sweeper continues instead,
   and cleans up after the daemon. */
static void end_sweeper(struct gb_closer *closer)
{
    const struct timespec moment = {.tv_nsec = 100000};
    uint64_t until = gb_now_ms() + END_MS;

    if (closer->sweeper == 0 || closer->busy > 0)
        return;
    closer->helpers->ends = true;
    ask_sweeper(closer);
    while (waitpid(closer->sweeper, NULL, WNOHANG) == 0 && gb_now_ms() < until)
        nanosleep(&moment, NULL);
}

void gb_closer_end(struct gb_closer *closer)
{
    if (!closer)
        return;
    end_sweeper(closer);
    for (unsigned i = 0; i < 2; i++)
        if (closer->reports[i] >= 0)
            close(closer->reports[i]);
    if (closer->sweeper_fd >= 0)
        close(closer->sweeper_fd);
    if (closer->helpers)
        munmap(closer->helpers, sizeof(*closer->helpers));
    free(closer->nobodys.fds);
    free(closer);
}
