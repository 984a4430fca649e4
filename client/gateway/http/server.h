/* Shared by http.c (listening, and who may ask) and respond.c (the answers). */
#ifndef GB_GATEWAY_SERVER_H
#define GB_GATEWAY_SERVER_H

#include <microhttpd.h>

#include "client/gateway/base/ask.h"
#include "client/gateway/base/options.h"
#include "client/gateway/events/feed.h"
#include "client/gateway/http/access.h"
#include "client/gateway/http/connections.h"
#include "proto/wire/json.h"

#define GB_GATEWAY_TOKEN_BYTES 513
#define GB_GATEWAY_BODY_BYTES 1024 /* of a form's body; there is one form */

/* An address that we listen at. */
struct gb_gateway_door {
    struct gb_gateway_http *http;
    struct MHD_Daemon *daemon;
    int fd;
    char *path; /* of a unix socket, owned; NULL: TCP */
    unsigned port;
    struct gb_gateway_connections connections;
};

struct gb_gateway_http {
    const struct gb_gateway_options *options;
    struct gb_gateway_ring *ring;
    struct gb_gateway_feed *feed;
    struct gb_gateway_publish *publish;
    struct gb_gateway_ask ask;
    struct gb_gateway_door doors[GB_GATEWAY_OPTIONS_MANY];
    unsigned door_count;
    pthread_mutex_t metrics_lock; /* guards the daemon's metrics, of question … */
    struct gb_writer metrics;
    uint64_t metrics_of;                     /* … this number; 0: there are none */
    atomic_uint_fast64_t metrics_begun;      /* questions so far */
    pthread_mutex_t secret_lock;             /* guards the text of token and cookie */
    char token[GB_GATEWAY_TOKEN_BYTES];      /* "": no token is asked for */
    char cookie[33];                         /* a browser's stand-in for the token */
    atomic_uint era;                         /* of the token: counts its changes */
    atomic_uint_fast64_t responses[4], lost; /* by the status' first digit: 2xx … 5xx; events */
};

/* A request, from its first line on. */
struct gb_gateway_request {
    char *target;    /* as it came; owned */
    char method[16]; /* its first characters */
    int64_t since_ms;
    unsigned era; /* of the token, when it was asked for */
    struct gb_gateway_connection *connection;
    bool begun;
    struct gb_gateway_http_text path, query; /* of the target; the query without its "?" */
    char body[GB_GATEWAY_BODY_BYTES];
    size_t body_length;
};

/* The record of a peer's connection. NULL: memory was out when it connected. */
struct gb_gateway_connection *gb_gateway_connection_of(struct MHD_Connection *peer);
/* Answers a complete request that may be answered. */
enum MHD_Result gb_gateway_respond(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                   struct gb_gateway_request *request, const char *method);
/* Answers with one sentence. */
enum MHD_Result gb_gateway_respond_text(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                        unsigned status, const char *text);
/* Answers with the form that asks for the token. */
enum MHD_Result gb_gateway_respond_form(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                        unsigned status);
/* Redirects to the page, with the cookie that stands for the token. */
enum MHD_Result gb_gateway_respond_signed_in(struct gb_gateway_door *door,
                                             struct MHD_Connection *peer, const char *cookie);
/* Answers with a file of the page. False: there is none at that path. */
bool gb_gateway_respond_file(struct gb_gateway_door *door, struct MHD_Connection *peer,
                             struct gb_gateway_http_text path, enum MHD_Result *result);
struct gb_gateway_http_text gb_gateway_header(struct MHD_Connection *peer, const char *name);

#endif
