/*
 * Makes a program meet what the kernel may do and seldom does: calls that fail, that are
 * interrupted, that take or give a byte at a time; a wall clock that jumps. Loaded by LD_PRELOAD
 * into a daemon or a client; GPUBUF_SHIM names a file, mapped here and by the test, that says what
 * is to happen from now on. Without GPUBUF_SHIM nothing is changed. tests/fault/shim.py is the
 * other side.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Calls that can be made to fail, in the order that shim.py knows. */
enum call {
    ACCEPT,
    MEMFD,
    TRUNCATE,
    DUPLICATE,
    OPEN,
    PWRITE,
    RECEIVE,
    SEND,
    PIDFD,
    MAP,
    OPENAT,
    CALLS
};

static struct {
    _Atomic int64_t realtime_ns;  /* added to the wall clock */
    _Atomic uint64_t most;        /* bytes that one call receives or sends; 0: any */
    _Atomic uint64_t send_buffer; /* bytes of the send buffer of accepted sockets; 0: unchanged */
    struct {
        _Atomic int64_t skip;  /* how many calls succeed before the first that fails */
        _Atomic int64_t count; /* how many fail after that */
        _Atomic int64_t error;
        _Atomic int64_t failed; /* how many have failed so far */
    } calls[CALLS];
} nothing, *faults = &nothing;

static bool fails(enum call call)
{
    if (atomic_load(&faults->calls[call].count) <= 0)
        return false;
    if (atomic_fetch_sub(&faults->calls[call].skip, 1) > 0)
        return false;
    atomic_fetch_sub(&faults->calls[call].count, 1);
    atomic_fetch_add(&faults->calls[call].failed, 1);
    errno = (int)atomic_load(&faults->calls[call].error);
    return true;
}

static size_t at_most(size_t length)
{
    uint64_t most = atomic_load(&faults->most);

    return most > 0 && most < length ? (size_t)most : length;
}

#define REAL(name) ((__typeof__(&(name)))real(#name))

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void on_alarm(int number)
{
    (void)number;
}

/* GPUBUF_SHIM_ALARM=N: sends the program a signal, handled without SA_RESTART, every N
   microseconds. */
__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("GPUBUF_SHIM"), *storm = getenv("GPUBUF_SHIM_ALARM");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd >= 0) {
        void *map = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (map == MAP_FAILED)
            abort();
        faults = map;
        close(fd);
    }
    if (storm) {
        struct sigaction action = {.sa_handler = on_alarm};
        struct itimerval every = {.it_interval.tv_usec = atoi(storm),
                                  .it_value.tv_usec = atoi(storm)};

        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
    }
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int size = (int)atomic_load(&faults->send_buffer);
    int got = fails(ACCEPT) ? -1 : REAL(accept4)(fd, address, length, flags);

    if (got >= 0 && size > 0)
        setsockopt(got, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    return got;
}

int memfd_create(const char *name, unsigned flags)
{
    return fails(MEMFD) ? -1 : REAL(memfd_create)(name, flags);
}

int ftruncate(int fd, off_t length)
{
    return fails(TRUNCATE) ? -1 : REAL(ftruncate)(fd, length);
}

int fcntl(int fd, int command, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, command);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_DUPFD_CLOEXEC && fails(DUPLICATE))
        return -1;
    return REAL(fcntl)(fd, command, argument);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags); /* a caller that passes no mode: the value read here is not used */
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return fails(OPEN) ? -1 : REAL(open)(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags); /* as in open() */
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return fails(OPENAT) ? -1 : REAL(openat)(directory, path, flags, mode);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_SHARED) && fails(MAP))
        return MAP_FAILED;
    return REAL(mmap)(address, length, protection, flags, fd, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    return fails(PWRITE) ? -1 : REAL(pwrite)(fd, data, length, offset);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (fails(RECEIVE))
        return -1;
    if (message->msg_iovlen == 1)
        message->msg_iov->iov_len = at_most(message->msg_iov->iov_len);
    return REAL(recvmsg)(fd, message, flags);
}

ssize_t recv(int fd, void *data, size_t length, int flags)
{
    return fails(RECEIVE) ? -1 : REAL(recv)(fd, data, at_most(length), flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr part = *message;
    struct iovec first;

    if (fails(SEND))
        return -1;
    if (atomic_load(&faults->most) > 0 && message->msg_iovlen > 0) {
        first = *message->msg_iov;
        first.iov_len = at_most(first.iov_len);
        part.msg_iov = &first;
        part.msg_iovlen = 1;
    }
    return REAL(sendmsg)(fd, &part, flags);
}

ssize_t send(int fd, const void *data, size_t length, int flags)
{
    return fails(SEND) ? -1 : REAL(send)(fd, data, at_most(length), flags);
}

long syscall(long number, ...)
{
    va_list arguments;
    long each[6];

    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        each[i] = va_arg(arguments, long); /* as many as there may be */
    va_end(arguments);
    if (number == SYS_pidfd_open && fails(PIDFD))
        return -1;
    return REAL(syscall)(number, each[0], each[1], each[2], each[3], each[4], each[5]);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int r = REAL(clock_gettime)(clock, now);
    int64_t jump = atomic_load(&faults->realtime_ns);

    if (r == 0 && jump != 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t all = now->tv_sec * 1000000000 + now->tv_nsec + jump;

        now->tv_sec = all / 1000000000;
        now->tv_nsec = all % 1000000000;
    }
    return r;
}
