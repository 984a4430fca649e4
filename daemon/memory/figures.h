/* The figures of devices and tiers, as the answer to `stats` has them. */
#ifndef GB_FIGURES_H
#define GB_FIGURES_H

#include <stdbool.h>

struct gb_device;
struct gb_tier;
struct gb_writer;

/* Writes "id":…, "name":…, and all other figures of a device, without braces. `segments`: also how
   many segments it has. */
void gb_device_write_figures(struct gb_writer *writer, const struct gb_device *device,
                             bool segments);
/* Writes "tiers":[…]. `tiers` are GB_TIERS; those that do not exist are left out. */
void gb_tiers_write_figures(struct gb_writer *writer, const struct gb_tier *tiers);

#endif
