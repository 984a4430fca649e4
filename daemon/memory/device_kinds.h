/*
 * The kinds of devices: the one place that knows them all. device.h has the struct of a device, and
 * the operations of a kind.
 */
#ifndef GB_DEVICE_KINDS_H
#define GB_DEVICE_KINDS_H

#include "daemon/memory/device.h"

/* The length of the id at the beginning of a spec: it ends before the size, or with the spec. */
size_t gb_device_id_length(const char *text);
/* Whether any kind has devices of that id. */
bool gb_device_is_known(const char *id);
/* Appends the devices that a spec means: as the kind's `open`. */
int gb_device_open(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                   struct gb_error *error);

#endif
