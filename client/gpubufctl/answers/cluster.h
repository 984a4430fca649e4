/*
 * Questions to gpubufd-peer, for `where` and `ls --cluster`, at its unix socket: a line of JSON
 * each way (client/peer/local/query.h).
 */
#ifndef GB_CLUSTER_H
#define GB_CLUSTER_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"

#define GB_CLUSTER_SOCKET "/run/gpubufd-peer/peer.sock"

/* The option --peer-socket, for the tables of the commands that ask gpubufd-peer. */
#define GB_CLUSTER_OPTION                                                                          \
    {                                                                                              \
        "peer-socket", 0, "PATH",                                                                  \
            "where gpubufd-peer answers ($GPUBUFD_PEER_SOCKET, else " GB_CLUSTER_SOCKET ")", NULL  \
    }

/* Asks one thing. `path` NULL: $GPUBUFD_PEER_SOCKET, or the usual path. The caller keeps the
   question; the answer is to be freed with cJSON_Delete. */
cJSON *gb_cluster_ask(const char *path, const cJSON *question);

/* gpubufctl ls --cluster */
void gb_cluster_ls(struct gb_cli *cli, const char *path, const char *prefix, bool names);

#endif
