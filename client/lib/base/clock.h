/* Monotonic time, and the time left until a deadline. No state; any thread. */
#ifndef GB_LIB_CLOCK_H
#define GB_LIB_CLOCK_H

#include <stdint.h>

int64_t gb_now_us(void);
int64_t gb_now_ms(void);
/* The same, up to some milliseconds old; reading it takes a tenth of the time. */
int64_t gb_coarse_ms(void);
/* The end of `timeout_ms` from now; -1 (never) if that is negative. No timeout is too large. */
int64_t gb_deadline_ms(int64_t timeout_ms);
/* The time left until `deadline` (-1: never), for poll. */
int gb_left_ms(int64_t deadline);

#endif
