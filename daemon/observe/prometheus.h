/*
 * The counters as Prometheus reads them. Every family of metrics is written in prometheus.c, and
 * described in docs/METRICS.md; a test holds the two, the dashboard and the alerts together.
 */
#ifndef GB_PROMETHEUS_H
#define GB_PROMETHEUS_H

struct gb_observe_counts;
struct gb_server;
struct gb_writer;

/* All of it: one text, without anything that grows with objects or sessions. */
void gb_prometheus_write(struct gb_server *server, const struct gb_observe_counts *counts,
                         struct gb_writer *writer);

#endif
