#include "daemon/serve/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
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

#define PROCESSES (GB_CLOSERS + 1u) /* the last is the sweeper */
#define SMALL_BYTES (1 << 20)       /* the largest memfd whose pages the loop frees itself */
#define DRAIN_BYTES 4096
#define DRAIN_TIMES 16
#define STOP_MS 500 /* for what is still to be closed when the daemon ends */

struct gb_closer {
    int closings[2], closed[2]; /* pipes to the processes, and back; our ends do not block */
    pid_t processes[PROCESSES]; /* 0: none */
    struct gb_sweep *sweep;
    uv_poll_t poll;
    bool polled;
    struct gb_foreign *hands[GB_CLOSERS]; /* the queue of the one being closed, or NULL */
    unsigned busy;                        /* hands that are not NULL */
    struct gb_link waiting;               /* other struct gb_foreign with descriptors */
    struct gb_foreign nobodys;
};

/* ---- the processes ---- */

/* Valgrind ends a program that forks processes with shared descriptors. */
static bool is_under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");

    return preloaded && strstr(preloaded, "vgpreload");
}

/* A child with the same descriptors, not with copies of them. */
static pid_t fork_sharing(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

static bool start_processes(struct gb_closer *closer)
{
    pid_t daemon = getpid();

    for (unsigned i = 0; i < PROCESSES; i++) {
        pid_t pid = fork_sharing();

        if (pid == 0 && i < GB_CLOSERS)
            gb_closer_run(daemon, closer->closings[0], closer->closed[1]);
        if (pid == 0)
            gb_sweeper_run(daemon, closer->sweep);
        if (pid < 0)
            return false;
        closer->processes[i] = pid;
    }
    return true;
}

static bool make_pipes(struct gb_closer *closer)
{
    if (pipe2(closer->closings, O_CLOEXEC) < 0 || pipe2(closer->closed, O_CLOEXEC) < 0)
        return false;
    return fcntl(closer->closings[1], F_SETFL, O_NONBLOCK) == 0 &&
           fcntl(closer->closed[0], F_SETFL, O_NONBLOCK) == 0;
}

int gb_closer_new(struct gb_closer **out, struct gb_error *error)
{
    struct gb_closer *closer;
    int r = 0;

    *out = NULL;
    if (is_under_valgrind())
        return 0;
    closer = calloc(1, sizeof(*closer));
    if (!closer)
        return gb_fail_memory(error);
    closer->closings[0] = closer->closings[1] = closer->closed[0] = closer->closed[1] = -1;
    gb_list_init(&closer->waiting);
    closer->sweep = mmap(NULL, sizeof(*closer->sweep), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (closer->sweep == MAP_FAILED) {
        closer->sweep = NULL;
        r = gb_fail_errno(error, "cannot share memory with the closer");
    } else {
        for (unsigned i = 0; i < GB_CLOSER_LOCKS; i++)
            closer->sweep->locks[i] = -1;
        closer->sweep->listener = -1;
        if (!make_pipes(closer) || !start_processes(closer))
            r = gb_fail_errno(error, "cannot start the closer's processes");
    }
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

static int take_from_queue(struct gb_foreign *foreign)
{
    int fd = foreign->fds[foreign->first++];

    if (--foreign->count == 0)
        foreign->first = 0;
    return fd;
}

static unsigned free_hand(const struct gb_closer *closer)
{
    unsigned hand = 0;

    while (closer->hands[hand])
        hand++;
    return hand;
}

/* Hands descriptors to the closers: one of each queue, in turn (round robin). */
static void hand_out(struct gb_closer *closer)
{
    while (closer->busy < GB_CLOSERS && !gb_list_empty(&closer->waiting)) {
        struct gb_foreign *foreign =
            GB_CONTAINER(closer->waiting.next, struct gb_foreign, of_closer);
        struct gb_closing closing = {.hand = free_hand(closer), .fd = take_from_queue(foreign)};

        gb_list_remove(&foreign->of_closer);
        closer->hands[closing.hand] = foreign;
        closer->busy++;
        foreign->in_hand = true;
        /* The pipe has room: it never has more items than there are closers. */
        if (write(closer->closings[1], &closing, sizeof(closing)) < 0)
            abort();
    }
}

/* Releases a queue that is empty, and its reference to the user, which may be the last. */
static void let_go(struct gb_foreign *foreign)
{
    struct gb_user *user = foreign->user;

    if (foreign->count > 0 || foreign->in_hand)
        return;
    free(foreign->fds);
    *foreign = (struct gb_foreign){0};
    gb_user_unref(user);
}

static void uncharge(struct gb_foreign *foreign, uint64_t count)
{
    if (foreign->user)
        gb_user_hold_fds(foreign->user, -(int64_t)count);
}

static void is_closed(struct gb_closer *closer, unsigned hand)
{
    struct gb_foreign *foreign = closer->hands[hand];

    closer->hands[hand] = NULL;
    closer->busy--;
    if (!foreign)
        return; /* gb_closer_stop() has forgotten it */
    foreign->in_hand = false;
    uncharge(foreign, 1);
    if (foreign->count > 0)
        gb_list_append(&closer->waiting, &foreign->of_closer);
    let_go(foreign);
}

static void hear(struct gb_closer *closer)
{
    unsigned hand;

    while (read(closer->closed[0], &hand, sizeof(hand)) == sizeof(hand))
        is_closed(closer, hand);
    hand_out(closer);
}

static void on_closed(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    hear(handle->data);
}

void gb_closer_unlocks(struct gb_closer *closer, int lock_fd)
{
    unsigned i = 0;

    if (!closer)
        return;
    while (i < GB_CLOSER_LOCKS - 1 && closer->sweep->locks[i] >= 0)
        i++;
    closer->sweep->locks[i] = lock_fd;
}

void gb_closer_shuts(struct gb_closer *closer, int listener_fd)
{
    if (closer)
        closer->sweep->listener = listener_fd;
}

int gb_closer_start(struct gb_closer *closer, uv_loop_t *loop)
{
    if (!closer)
        return 0;
    if (uv_poll_init(loop, &closer->poll, closer->closed[0]) < 0)
        return GPUBUF_E_SYSTEM;
    closer->poll.data = closer;
    closer->polled = true;
    uv_poll_start(&closer->poll, UV_READABLE, on_closed);
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
    if (user)
        gb_user_hold_fds(user, 1);
    if (!idle)
        return;
    foreign->user = user ? gb_user_ref(user) : NULL;
    gb_list_append(&closer->waiting, &foreign->of_closer);
    hand_out(closer);
}

void gb_close_foreign(struct gb_closer *closer, struct gb_user *user, int fd)
{
    if (!closer || closes_at_once(fd))
        close(fd);
    else
        hand_over(closer, user, user ? &user->received : &closer->nobodys, fd);
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
    return user->received.count >= most;
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
        hand_over(closer, user, user ? &user->ended : &closer->nobodys, fd);
}

/* ---- the end ---- */

/* Forgets a queue. Its descriptors stay open until the daemon has ended. */
static void forget(struct gb_foreign *foreign)
{
    uncharge(foreign, foreign->count + foreign->in_hand);
    foreign->count = 0;
    foreign->in_hand = false;
    let_go(foreign);
}

void gb_closer_stop(struct gb_closer *closer)
{
    uint64_t until = gb_now_ms() + STOP_MS, now;

    if (!closer)
        return;
    if (closer->polled)
        uv_poll_stop(&closer->poll);
    hear(closer);
    while (closer->busy > 0 && (now = gb_now_ms()) < until) {
        struct pollfd entry = {.fd = closer->closed[0], .events = POLLIN};

        poll(&entry, 1, (int)(until - now));
        hear(closer);
    }
    GB_LIST_EACH(&closer->waiting, link) {
        gb_list_remove(link);
        forget(GB_CONTAINER(link, struct gb_foreign, of_closer));
    }
    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        if (closer->hands[i])
            forget(closer->hands[i]);
        closer->hands[i] = NULL;
    }
}

/* Whether the process ends until that time. One that is stuck in a close() may never end. */
static bool has_ended(pid_t pid, uint64_t until)
{
    const struct timespec moment = {.tv_nsec = 100000};
    pid_t got;

    while ((got = waitpid(pid, NULL, WNOHANG)) == 0 && gb_now_ms() < until)
        nanosleep(&moment, NULL);
    return got != 0;
}

static void end_processes(struct gb_closer *closer)
{
    bool stuck = closer->busy > 0;
    unsigned last = stuck ? GB_CLOSERS : PROCESSES; /* if stuck, the sweeper cleans up after us */

    for (unsigned i = 0; i < last; i++)
        if (closer->processes[i] > 0)
            kill(closer->processes[i], SIGKILL);
    for (unsigned i = 0; i < last; i++)
        if (closer->processes[i] > 0)
            has_ended(closer->processes[i], gb_now_ms() + (stuck ? 10 : 10000));
}

void gb_closer_end(struct gb_closer *closer)
{
    if (!closer)
        return;
    end_processes(closer);
    for (unsigned i = 0; i < 2; i++) {
        if (closer->closings[i] >= 0)
            close(closer->closings[i]);
        if (closer->closed[i] >= 0)
            close(closer->closed[i]);
    }
    if (closer->sweep)
        munmap(closer->sweep, sizeof(*closer->sweep));
    free(closer->nobodys.fds);
    free(closer);
}
