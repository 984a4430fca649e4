/*
 * The answers of the JSON API and of /metrics, made of the daemon's answers (docs/HTTP.md). Each is
 * written as a whole, except /api/objects, which comes in slices: the daemon is asked for a slice
 * when the one before has been sent.
 */
#ifndef GB_GATEWAY_API_H
#define GB_GATEWAY_API_H

#include "client/gateway/base/ask.h"
#include "client/gateway/events/ring.h"
#include "proto/wire/json.h"

#define GB_GATEWAY_OBJECTS_MOST 10000 /* rows of one answer */

/* These write to the writer. On failure `error` has a sentence. */
int gb_gateway_api_stats(struct gb_gateway_ask *ask, struct gb_writer *writer,
                         struct gb_error *error);
int gb_gateway_api_snapshot(struct gb_gateway_ask *ask, struct gb_writer *writer,
                            struct gb_error *error);
/* The leases on the object of that name: none where there is no such object, or none to show. */
int gb_gateway_api_holders(struct gb_gateway_ask *ask, const char *name,
                           enum gb_gateway_audience audience, struct gb_writer *writer,
                           struct gb_error *error);
/* The daemon's families, as Prometheus reads them. */
int gb_gateway_api_metrics(struct gb_gateway_ask *ask, struct gb_writer *writer,
                           struct gb_error *error);
/* The same for an answer that has been received, from the daemon or from gpubufd-peer. */
int gb_gateway_api_families(const char *text, size_t length, struct gb_writer *writer,
                            struct gb_error *error);

/* An answer of /api/objects under way. */
struct gb_gateway_objects {
    struct gb_gateway_ask *ask;
    enum gb_gateway_audience audience;
    uint64_t limit, count;
    char after[256];                  /* the cursor of the next question; "": the beginning */
    char shown[256];                  /* the name in the last row */
    char instance[GB_INSTANCE_BYTES]; /* of the daemon whose objects these are */
    bool begun, done;
    struct gb_pool pool;
};

/* The next slice, added to the writer; `done` says whether it was the last. */
int gb_gateway_api_objects(struct gb_gateway_objects *objects, struct gb_writer *writer,
                           struct gb_error *error);

#endif
