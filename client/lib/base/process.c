#include "client/lib/base/process.h"

#include <stdatomic.h>
#include <stdlib.h>

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
