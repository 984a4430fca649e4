/*
 * Shared by the API and the events: the daemon's answer to `stats`, its form for the page, and
 * which objects are public. Pure; any thread.
 */
#ifndef GB_GATEWAY_ANSWER_H
#define GB_GATEWAY_ANSWER_H

#include "proto/wire/json.h"

/* The members of an answer to `stats` that are passed on. Texts lie in the answer and in the
   pool. */
struct gb_gateway_stats {
    uint64_t seq, sessions, leases, names, private_names;
    struct gb_string server, instance; /* `instance` has at most 63 bytes */
    struct gb_json devices, tiers;
};

int gb_gateway_stats_read(const char *text, size_t length, struct gb_pool *pool,
                          struct gb_gateway_stats *stats, struct gb_error *error);
/* Writes it as in /api/stats and in the events: an object of the kind "stats". */
void gb_gateway_stats_write(struct gb_writer *writer, const struct gb_gateway_stats *stats);
/* Writes the first members of that object: number, time, instance and version. */
void gb_gateway_stats_write_heading(struct gb_writer *writer, const struct gb_gateway_stats *stats);

/* Copies a value's JSON text. */
void gb_gateway_write_copy(struct gb_writer *writer, struct gb_json value);

/* Whether all users may open an object with that mode, such as "0604". */
bool gb_gateway_is_public(const struct gb_string *mode);

#endif
