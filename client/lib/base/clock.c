#include "client/lib/base/clock.h"

#include <time.h>

int64_t gb_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t gb_now_ms(void)
{
    return gb_now_us() / 1000;
}

int64_t gb_coarse_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t gb_deadline_ms(int64_t timeout_ms)
{
    int64_t now = gb_now_ms();

    if (timeout_ms < 0)
        return -1;
    return timeout_ms > INT64_MAX - now ? INT64_MAX : now + timeout_ms;
}

int gb_left_ms(int64_t deadline)
{
    if (deadline < 0)
        return -1;
    int64_t left = deadline - gb_now_ms();
    if (left <= 0)
        return 0;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}
