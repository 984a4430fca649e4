/* The figures of devices and tiers, as `stats` says them. */
#ifndef GB_STATS_H
#define GB_STATS_H

#include <stdbool.h>

struct gb_device;
struct gb_server;
struct gb_writer;

/* "id":…, "name":…, and all that `stats` says of a device, without braces. `segments`: with how many it has. */
void gb_device_write_figures(struct gb_writer *writer, const struct gb_device *device,
                             bool segments);
/* "tiers":[…]: those below the devices that there are. */
void gb_tiers_write_figures(struct gb_writer *writer, const struct gb_server *server);

#endif
