/*
 * The peer's settings: options of the command line over keys of a configuration file. Every
 * option `--some-key VALUE` is the key `some-key = VALUE` of the file.
 */
#ifndef GB_PEER_OPTIONS_H
#define GB_PEER_OPTIONS_H

#include "client/peer/directory/directory.h"
#include "client/peer/directory/etcd.h"
#include "proto/wire/log.h"

enum { GB_PEER_PREFIXES_MOST = 16 };

struct gb_peer_options {
    char *socket; /* of the daemon; NULL: the default places. Owned, as all below */
    char *listen;
    char *authority, *certificate, *key; /* files */
    char *etcd[GB_PEER_ETCD_ENDPOINTS + 1];
    char *etcd_authority, *etcd_certificate, *etcd_key, *root;
    char advertise[GB_PEER_HOST_BYTES]; /* where other machines reach this one */
    uint16_t advertise_port;
    unsigned lease_seconds;
    char *prefixes[GB_PEER_PREFIXES_MOST + 1]; /* of the names that are fetched; none: of all */
    char *gpu;
    uint64_t largest;
    char *query; /* a socket's path; NULL: programs of this machine cannot ask */
    unsigned connections, patience_ms, copy_seconds, user_names;
    bool ucx; /* the network is trusted */
    enum gb_log_level log_level;
    bool log_json;
    bool help, version;
};

/* On failure a sentence that says where (option, or file and line), what was wrong and what was
   expected. */
int gb_peer_options_read(struct gb_peer_options *options, char **argv, struct gb_error *error);
void gb_peer_options_end(struct gb_peer_options *options);
void gb_peer_options_help(void); /* to stdout */

#endif
