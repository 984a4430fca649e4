#include "daemon/base/failpoint.h"

#ifdef GB_FAILPOINTS

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert((GB_FAILPOINT_HITS + GB_FAILPOINTS_COUNT) * 8 <= GB_FAILPOINT_BYTES,
               "every point has a word");

static _Atomic(uint64_t) *words; /* NULL: no test asked for failpoints */

void gb_failpoints_begin(void)
{
    const char *path = getenv("GPUBUFD_FAILPOINTS");
    void *mapped;
    int fd;

    if (!path)
        return;
    fd = open(path, O_RDWR | O_CLOEXEC);
    mapped = fd < 0 ? MAP_FAILED
                    : mmap(NULL, GB_FAILPOINT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (mapped == MAP_FAILED)
        abort(); /* or the test would pass without having killed anything */
    words = mapped;
}

void gb_failpoint(enum gb_failpoint point)
{
    uint64_t armed = (uint64_t)point + 1;

    if (!words)
        return;
    atomic_fetch_add(&words[GB_FAILPOINT_HITS + point], 1);
    if (atomic_load(&words[GB_FAILPOINT_ARMED]) != armed ||
        atomic_fetch_sub(&words[GB_FAILPOINT_COUNTDOWN], 1) != 1 ||
        !atomic_compare_exchange_strong(&words[GB_FAILPOINT_ARMED], &armed, 0))
        return;
    atomic_store(&words[GB_FAILPOINT_END_GRACE], 0); /* of this daemon, not of its successor */
    atomic_fetch_add(&words[GB_FAILPOINT_FIRED], 1);
    for (;;)
        kill(getpid(), SIGKILL);
}

bool gb_failpoint_is_next(enum gb_failpoint point)
{
    return words && atomic_load(&words[GB_FAILPOINT_ARMED]) == (uint64_t)point + 1 &&
           atomic_load(&words[GB_FAILPOINT_COUNTDOWN]) == 1;
}

bool gb_failpoint_ends_grace(void)
{
    return words && atomic_load(&words[GB_FAILPOINT_END_GRACE]) != 0;
}

#endif
