/*
 * The time. gb_now_ms() and gb_now_us() read one clock, which only goes forward and counts
 * from an unknown moment; gb_wall_ms() counts from 1970, and may jump. Any thread may call these.
 */
#ifndef GB_CLOCK_H
#define GB_CLOCK_H

#include <stdint.h>

uint64_t gb_now_ms(void);
uint64_t gb_now_us(void);
int64_t gb_wall_ms(void);

#endif
