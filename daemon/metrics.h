/*
 * Counters for operators, and their text as Prometheus reads it. What is counted is counted as it
 * happens, so that asking costs the same with a million objects as with none. The loop's thread.
 */
#ifndef GB_METRICS_H
#define GB_METRICS_H

#include "proto/json.h"

struct gb_server;

/* All of it: one text, without anything that grows with objects or sessions. */
void gb_metrics_write(struct gb_server *server, struct gb_writer *writer);

#endif
