#include "client/gateway/base/options.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/option.h"

static int check_name(void *at, const char *value, struct gb_error *error)
{
    for (const char *c = value; *c || c == value; c++)
        if (!isalnum((unsigned char)*c) && !(*c && strchr("-._", *c)))
            return gb_fail(error, GPUBUF_E_INVALID,
                           "\"%s\" is no host name such as gpu7.example.org", value);
    return 0;
}

static int set_access_log(void *at, const char *value, struct gb_error *error)
{
    bool *on = at;

    *on = strcmp(value, "on") == 0;
    if (!*on && strcmp(value, "off") != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected on or off", value);
    return 0;
}

#define AT(member) offsetof(struct gb_gateway_options, member)

static const struct gb_option known[] = {
    {"config", "FILE", "read options from FILE first: lines such as http = 127.0.0.1:9464",
     .kind = GB_OPTION_FILE},
    {"socket", "PATH", "the daemon's socket, if it is not in one of the default places",
     .kind = GB_OPTION_TEXT, .member = AT(socket)},
    {"http", "WHERE", "serve the page, metrics and the API at ADDRESS:PORT or unix:PATH",
     .kind = GB_OPTION_LIST, .member = AT(http), .most = GB_GATEWAY_OPTIONS_MANY},
    {"http-token-file", "FILE", "require the token in FILE, and show private objects too",
     .kind = GB_OPTION_TEXT, .member = AT(token_file)},
    {"http-name", "NAME", "a host name that clients use for the gateway, such as a proxy's",
     .kind = GB_OPTION_LIST, .member = AT(names), .most = GB_GATEWAY_OPTIONS_MANY,
     .set = check_name},
    {"peer-socket", "PATH", "gpubufd-peer's socket (its --query), to add its metrics",
     .kind = GB_OPTION_TEXT, .member = AT(peer_socket)},
    {"events", "URL", "publish events to NNG's subscribers, at ipc:///PATH or tcp://127.0.0.1:PORT",
     .kind = GB_OPTION_LIST, .member = AT(events), .most = GB_GATEWAY_OPTIONS_MANY},
    {"access-log", "on|off", "log a line for each request (off)", .member = AT(access_log),
     .set = set_access_log},
    {"connections", "N", "serve at most N HTTP connections at each address (64)",
     .kind = GB_OPTION_COUNT, .member = AT(connections), .least = 4, .most = 4096},
    {"subscribers", "N", "serve at most N subscribers at each URL (128)", .kind = GB_OPTION_COUNT,
     .member = AT(subscribers), .least = 4, .most = 4096},
    GB_LOG_LEVEL_OPTION(AT(log_level)),
    GB_LOG_FORMAT_OPTION(AT(log_json)),
    {"help", NULL, "print this and exit", .kind = GB_OPTION_FLAG, .member = AT(help)},
    {"version", NULL, "print the version and exit", .kind = GB_OPTION_FLAG, .member = AT(version)},
    {.name = NULL},
};

static const struct gb_program program = {.name = "gpubufd-gateway", .options = known};

int gb_gateway_options_read(struct gb_gateway_options *options, char **argv, struct gb_error *error)
{
    *options = (struct gb_gateway_options){
        .connections = 64, .subscribers = 128, .log_level = GB_LOG_INFO};
    if (gb_option_read_file(&program, options, argv, error) < 0 ||
        gb_option_read_line(&program, options, argv, error) < 0)
        return error->code;
    if (!options->help && !options->version && !*options->http && !*options->events)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "nothing to do: give --http 127.0.0.1:9464, or --events ipc:///PATH");
    return 0;
}

void gb_gateway_options_end(struct gb_gateway_options *options)
{
    gb_option_free(&program, options);
}

void gb_gateway_options_help(void)
{
    printf("usage: gpubufd-gateway [OPTION]...\n\n"
           "Shows what gpubufd holds over HTTP, and publishes its events.\n"
           "See gpubufd-gateway(8).\n\n");
    gb_option_help(&program);
}
