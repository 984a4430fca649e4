/* The figures that gpubufd-peer tells of itself, in the form of the families of `stats`. */
#ifndef GB_PEER_METRICS_H
#define GB_PEER_METRICS_H

#include "client/peer/base/figures.h"
#include "client/peer/local/publish.h"
#include "proto/wire/json.h"

struct gb_peer_state {
    const struct gb_peer_figures *figures;
    struct gb_peer_publish_figures published;
    bool directory;            /* the directory is available */
    unsigned clients, servers; /* machines connected to this one, and it to them */
    uint64_t copies;
};

/* The families, with commas between them. */
void gb_peer_metrics_write(struct gb_writer *writer, const struct gb_peer_state *state);

#endif
