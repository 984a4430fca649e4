/* The time, and deadlines to wait until. Any thread. */
#ifndef GB_CLOCK_H
#define GB_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t gb_clock_ms(void); /* monotonic */
int64_t gb_wall_ms(void);  /* since 1970 */

/*
 * A deadline as the code names it, divided by GPUBUFD_GATEWAY_HASTE, 0.01 to 100, where the
 * environment has that: so that tests can see the long ones pass, and on a busy machine keep the
 * short ones out of their way.
 */
int64_t gb_deadline_ms(int64_t ms);

/* A condition whose waits are by the monotonic clock. */
void gb_condition_init(pthread_cond_t *condition);
/* Waits so long at most, with the lock held. False: the time is over. */
bool gb_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ms);

#endif
