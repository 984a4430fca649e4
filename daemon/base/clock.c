#include "daemon/base/clock.h"

#include <time.h>

static uint64_t clock_us(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t gb_now_ms(void)
{
    return clock_us(CLOCK_MONOTONIC) / 1000;
}

uint64_t gb_now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

int64_t gb_wall_ms(void)
{
    return (int64_t)(clock_us(CLOCK_REALTIME) / 1000);
}
