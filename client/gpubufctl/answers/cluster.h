/*
 * Questions to gpubufd-peer, for `where` and `ls --cluster`, at its unix socket: a line of JSON
 * each way (client/peer/local/query.h).
 */
#ifndef GB_CLUSTER_H
#define GB_CLUSTER_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"

#define GB_CLUSTER_SOCKET "/run/gpubufd-peer/peer.sock"

/* Asks gpubufd-peer at $GPUBUFD_PEER_SOCKET, or the usual path. The caller keeps the question; the
   answer is to be freed with cJSON_Delete. */
cJSON *gb_cluster_ask(const cJSON *question);

/* gpubufctl ls --cluster */
void gb_cluster_ls(struct gb_cli *cli, const char *prefix, bool names);

#endif
