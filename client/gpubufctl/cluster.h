/*
 * Questions to gpubufd-peer, for `where` and `ls --cluster`, at its unix socket: a line of JSON
 * each way (client/peer/query.h).
 */
#ifndef GB_CLUSTER_H
#define GB_CLUSTER_H

#include <cjson/cJSON.h>

#include "cli.h"
#include "grid.h"

#define GB_CLUSTER_SOCKET "/run/gpubufd-peer/peer.sock"

/* The row of a command's table that says which socket. */
#define GB_CLUSTER_OPTION                                                                          \
    {                                                                                              \
        "peer-socket", 0, "PATH",                                                                  \
            "where gpubufd-peer answers ($GPUBUFD_PEER_SOCKET, else " GB_CLUSTER_SOCKET ")", NULL, \
            GB_COMPLETE_FILE                                                                       \
    }

/* Asks one thing. `path` NULL: the usual place. The question stays the caller's. 0 and *answer, to
   be freed with cJSON_Delete, or a status; the failure has been told. */
int gb_cluster_ask(const char *path, const cJSON *question, cJSON **answer);

/* The size and the version of a name or a place; and how long it has been there. */
void gb_cluster_cells(struct gb_grid *grid, const cJSON *item);
void gb_cluster_age(struct gb_grid *grid, const cJSON *item);

/* gpubufctl ls --cluster */
int gb_cluster_ls(struct gb_cli *cli, const char *path, const char *prefix, bool names);

#endif
