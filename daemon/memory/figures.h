/* The counters and gauges of devices and tiers: each once, for both answers of `stats`. */
#ifndef GB_FIGURES_H
#define GB_FIGURES_H

#include <stddef.h>
#include <stdint.h>

struct gb_device;
struct gb_tier;

struct gb_figure {
    const char *member;        /* its name in `stats`; NULL: not there */
    const char *family, *help; /* in `stats` with `families`; NULL: not there. One that ends with
                                  _total is a counter, others are gauges; _seconds in it: the value
                                  is in microseconds. */
    uint64_t value;
};

#define GB_FIGURES 32 /* of a thing, at most */

/* Return how many they have set. `evictable`: gb_evict_most() of the device. */
size_t gb_device_figures(const struct gb_device *device, uint64_t evictable,
                         struct gb_figure *figures);
size_t gb_tier_figures(const struct gb_tier *tier, struct gb_figure *figures);

#endif
