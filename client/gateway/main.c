/* gpubufd-gateway: shows the daemon's memory over HTTP, and publishes its events. It is a client of
   the daemon like any other. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "client/gateway/base/options.h"
#include "client/gateway/events/feed.h"
#include "client/gateway/events/publish.h"
#include "client/gateway/events/ring.h"
#include "client/gateway/http/http.h"

#define DESCRIPTORS 8192 /* enough for all connections and subscribers */

enum { EXIT_OK = 0, EXIT_NOT_STARTED = 2 };

static int refuse(const struct gb_error *error)
{
    fprintf(stderr, "gpubufd-gateway: %s\n", error->message);
    return EXIT_NOT_STARTED;
}

/* Reloads at SIGHUP, and returns at SIGTERM or SIGINT. All threads have the three blocked. */
static void wait_for_end(const sigset_t *signals, struct gb_gateway_http *http)
{
    int which;

    while (sigwait(signals, &which) == 0 && which == SIGHUP)
        gb_gateway_http_reload(http);
    gb_log(GB_LOG_INFO, "stopping");
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int serve(const struct gb_gateway_options *options, const sigset_t *signals)
{
    struct gb_gateway_publish *publish = NULL;
    struct gb_gateway_http *http = NULL;
    struct gb_gateway_history history;
    struct gb_gateway_ring ring;
    struct gb_gateway_feed feed = {.socket = options->socket, .ring = &ring, .history = &history};
    struct gb_error error;
    int r = 0;

    gb_gateway_history_init(&history);
    if (!gb_gateway_ring_init(&ring))
        r = gb_fail_memory(&error);
    if (r == 0 && *options->events)
        r = gb_gateway_publish_new(options->events, options->subscribers, &publish, &error);
    if (r == 0 && *options->http)
        r = gb_gateway_http_new(options, &ring, &feed, publish, &http, &error);
    feed.publish = publish;
    if (r == 0)
        r = gb_gateway_feed_start(&feed, &error);
    if (r == 0) {
        wait_for_end(signals, http);
        gb_gateway_feed_stop(&feed);
    }
    gb_gateway_ring_stop(&ring);
    gb_gateway_http_free(http);
    gb_gateway_publish_free(publish);
    gb_gateway_ring_end(&ring);
    gb_gateway_history_end(&history);
    return r < 0 ? refuse(&error) : EXIT_OK;
}

int main(int argc, char **argv)
{
    struct gb_gateway_options options;
    struct gb_error error;
    sigset_t signals;
    int status;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (gb_gateway_options_read(&options, argv, &error) < 0) {
        status = refuse(&error);
    } else if (options.help) {
        gb_gateway_options_help();
        status = EXIT_OK;
    } else if (options.version) {
        printf("gpubufd-gateway %s\n", gpubuf_version());
        status = EXIT_OK;
    } else {
        gb_log_setup(options.log_level, options.log_json);
        raise_descriptor_limit();
        status = serve(&options, &signals);
    }
    gb_gateway_options_end(&options);
    return status;
}
