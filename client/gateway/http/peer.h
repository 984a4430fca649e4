/*
 * The metrics of gpubufd-peer, from its unix socket (client/peer/local/query.h). Each scrape makes
 * a connection and waits two seconds at most. Any thread.
 */
#ifndef GB_GATEWAY_PEER_H
#define GB_GATEWAY_PEER_H

#include "proto/wire/json.h"

/* Writes the metrics; without an answer, gpubufd_peer_up 0. */
void gb_gateway_peer_metrics(const char *path, struct gb_writer *writer);

#endif
