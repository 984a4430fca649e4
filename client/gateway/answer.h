/*
 * Shared by the API and the events: the daemon's answer to `stats` and how it is told on, and which
 * objects everybody may see. Pure; any thread.
 */
#ifndef GB_ANSWER_H
#define GB_ANSWER_H

#include "proto/json.h"

/* An answer to `stats`, as far as it is told on; its texts lie in the answer and in the pool. */
struct gb_stats {
    uint64_t seq, sessions, leases, names, private_names;
    struct gb_string server, instance; /* the latter of 63 octets at most */
    struct gb_json devices, tiers;
};

int gb_stats_read(const char *text, size_t length, struct gb_pool *pool, struct gb_stats *stats,
                  struct gb_error *error);
/* As /api/stats and the events have it: an object of the kind "stats". */
void gb_stats_write(struct gb_writer *writer, const struct gb_stats *stats);
/* Its first members: number, time, which daemon; the object goes on. */
void gb_stats_write_heading(struct gb_writer *writer, const struct gb_stats *stats);

/* Reads a table's members from a whole answer, whose tape lies in the pool. */
int gb_answer_read(const char *text, size_t length, const struct gb_field *fields, size_t count,
                   const char *what, struct gb_pool *pool, void *out, struct gb_error *error);

/* Puts a value as it came. */
void gb_write_copy(struct gb_writer *writer, struct gb_json value);

/* Whether everybody may open an object with that mode, such as "0604". */
bool gb_is_public(const struct gb_string *mode);

#endif
