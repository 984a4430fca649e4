/*
 * The metrics of gpubufd-peer, asked for at its unix socket (client/peer/query.h) with each scrape:
 * a connection for each, two seconds at most. Any thread.
 */
#ifndef GB_GATEWAY_PEER_H
#define GB_GATEWAY_PEER_H

#include "proto/json.h"

/* Writes them, or that there is no answer (gpubufd_peer_up 0). */
void gb_peer_metrics(const char *path, struct gb_writer *writer);

#endif
