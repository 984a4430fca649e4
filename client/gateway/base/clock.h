/* The time, and deadlines to wait until. Any thread. */
#ifndef GB_GATEWAY_CLOCK_H
#define GB_GATEWAY_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t gb_gateway_clock_ms(void); /* monotonic */
int64_t gb_gateway_wall_ms(void);  /* since 1970 */

/*
 * A deadline, divided by GPUBUFD_GATEWAY_HASTE (0.01 to 100) if the environment has it. So tests
 * can see long deadlines pass, and avoid short ones on a busy machine.
 */
int64_t gb_gateway_deadline_ms(int64_t ms);

/* Makes a condition that waits by the monotonic clock. */
void gb_gateway_condition_init(pthread_cond_t *condition);
/* Waits until `until_ms` at most, with the lock held. False: the time is over. */
bool gb_gateway_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ms);

#endif
