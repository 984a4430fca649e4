/* The figures of devices and tiers, as `stats` says them. */
#ifndef GB_FIGURES_H
#define GB_FIGURES_H

#include <stdbool.h>

struct gb_device;
struct gb_tier;
struct gb_writer;

/* "id":…, "name":…, and all that `stats` says of a device, without braces. `segments`: with how
   many it has. */
void gb_device_write_figures(struct gb_writer *writer, const struct gb_device *device,
                             bool segments);
/* "tiers":[…]: those of the GB_TIERS below the devices that there are. */
void gb_tiers_write_figures(struct gb_writer *writer, const struct gb_tier *tiers);

#endif
