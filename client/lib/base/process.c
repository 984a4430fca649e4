#include "client/lib/base/process.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/limits.h"

static _Atomic unsigned generation = 1;
static void (*_Atomic at_end)(void);

unsigned gb_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

void gb_process_forked(void)
{
    (void)atomic_fetch_add(&generation, 1);
}

bool gb_process_has_room(unsigned count)
{
    int fds[GB_LIMIT(fds)], why = 0;
    unsigned had = 0;

    while (had < count && (fds[had] = eventfd(0, EFD_CLOEXEC)) >= 0)
        had++;
    if (had < count)
        why = errno;
    for (unsigned i = 0; i < had; i++)
        close(fds[i]);
    errno = why;
    return had == count;
}

void gb_process_at_end(void (*stop)(void))
{
    atomic_store(&at_end, stop);
}

static void end(void)
{
    void (*stop)(void) = atomic_load(&at_end);
    if (stop)
        stop();
}

bool gb_process_stop_at_exit(void)
{
    return atexit(end) == 0;
}
