/*
 * What the daemon says of itself to those who look at it from outside: the JSON of the HTTP API, in
 * slices, so that an answer about a million objects never holds up a request. A *query* is made by
 * another thread, goes to the loop's thread for each slice, and comes back with the slice; in
 * between it belongs to whoever has it, and nobody else looks at it.
 */
#ifndef GB_REPORT_H
#define GB_REPORT_H

#include "daemon/base/walk.h"
#include "proto/json.h"
#include "proto/limits.h"

struct gb_object;
struct gb_observe_counts;
struct gb_server;

enum gb_query_kind { GB_QUERY_METRICS, GB_QUERY_STATS, GB_QUERY_SNAPSHOT, GB_QUERY_OBJECTS };

#define GB_QUERY_OBJECTS_MOST 10000 /* in one answer */

struct gb_query {
    struct gb_link link; /* in the queue of whoever it is on its way to */
    enum gb_query_kind kind;
    bool sees_all;                        /* private objects too */
    uint64_t limit;                       /* of objects */
    char after[GB_LIMIT(name_bytes) + 1]; /* the cursor: names after this one */
    size_t after_length;

    bool cancelled; /* nobody wants it any more: give up what it holds on the loop's thread */
    bool done;      /* this slice was the last */
    struct gb_writer writer; /* the slice; the maker's to end */

    /* The loop's own. */
    unsigned stage, device;
    uint64_t count;
    char shown[GB_LIMIT(
        name_bytes)]; /* the last name in the answer: what the next one may ask from */
    size_t shown_length;
    struct gb_walk walk;
};

/* Appends the next slice to the query's writer, which was reset. Takes under a millisecond. */
void gb_query_step(struct gb_server *server, struct gb_query *query,
                   const struct gb_observe_counts *counts);
/* Gives up what it holds of the server's. */
void gb_query_cancel(struct gb_query *query);

/* The figures of the moment as one object, as the live feed has them every second. */
void gb_report_stats(struct gb_server *server, struct gb_writer *writer);

/* Whether everybody may open the object, so that everybody may know of it. */
bool gb_object_is_public(const struct gb_object *object);

#endif
