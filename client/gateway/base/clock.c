#include "client/gateway/base/clock.h"

#include <stdlib.h>
#include <time.h>

static int64_t ms_of(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t gb_gateway_clock_ms(void)
{
    return ms_of(CLOCK_MONOTONIC);
}

int64_t gb_gateway_wall_ms(void)
{
    return ms_of(CLOCK_REALTIME);
}

int64_t gb_gateway_deadline_ms(int64_t ms)
{
    const char *text = getenv("GPUBUFD_GATEWAY_HASTE");
    double haste = text ? strtod(text, NULL) : 1;

    return haste >= 0.01 && haste <= 100 ? (int64_t)((double)ms / haste) : ms;
}

void gb_gateway_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool gb_gateway_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};

    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
