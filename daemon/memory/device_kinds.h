/*
 * Which kinds of devices there are: the one place that knows them all. A device itself and what a
 * kind has to do are in device.h.
 */
#ifndef GB_DEVICE_KINDS_H
#define GB_DEVICE_KINDS_H

#include "daemon/memory/device.h"

/* How long the id at the beginning of a spec is: up to its size, or all of it. */
size_t gb_device_id_length(const char *text);
/* Whether any kind has devices of that id. */
bool gb_device_is_known(const char *id);
/* Appends the devices that a spec means: as the kind's `open`. */
int gb_device_open(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                   struct gb_error *error);

#endif
