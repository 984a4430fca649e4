/*
 * The gateway's configuration: options of the command line over keys of a configuration file. Every
 * option `--some-key VALUE` is the key `some-key = VALUE` of the file.
 */
#ifndef GB_GATEWAY_OPTIONS_H
#define GB_GATEWAY_OPTIONS_H

#include <stdbool.h>

#include "proto/wire/log.h"

#define GB_GATEWAY_OPTIONS_MANY 8 /* of an option that may be given several times */

struct gb_gateway_options {
    char *socket;      /* of the daemon; NULL: the default places. Owned, as all below */
    char *peer_socket; /* NULL: there is no gpubufd-peer to be asked for its metrics */
    char *token_file;
    char *http[GB_GATEWAY_OPTIONS_MANY + 1]; /* ended by NULL, as the next two */
    char *names[GB_GATEWAY_OPTIONS_MANY + 1];
    char *events[GB_GATEWAY_OPTIONS_MANY + 1];
    bool access_log;      /* a line for each request */
    unsigned connections; /* of one listener */
    unsigned subscribers; /* of one URL */
    enum gb_log_level log_level;
    bool log_json;
    bool help, version;
};

/* On failure a sentence that says where (option, or file and line), what was wrong and what was
   expected. */
int gb_gateway_options_read(struct gb_gateway_options *options, char **argv,
                            struct gb_error *error);
void gb_gateway_options_end(struct gb_gateway_options *options);
void gb_gateway_options_help(void); /* to stdout */

#endif
