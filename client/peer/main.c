/* gpubufd-peer: fetches names that other machines have, and serves this machine's names to them. It
   is a client of the daemon like any other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/peer/base/tree.h"
#include "client/peer/directory/directory_etcd.h"
#include "client/peer/fetch/fetch.h"
#include "client/peer/link/ucx.h"
#include "client/peer/local/local.h"
#include "client/peer/local/metrics.h"
#include "client/peer/local/publish.h"
#include "client/peer/local/query.h"
#include "client/peer/options.h"
#include "client/peer/serve/serve.h"

enum { EXIT_OK = 0, EXIT_LOST = 1, EXIT_NOT_STARTED = 2, DESCRIPTORS = 8192 };
enum { LATE_MS = 5000 };

struct peer {
    struct gb_peer_options options;
    uv_loop_t loop;
    struct gb_peer_local local;
    char instance[64]; /* of the daemon */
    struct gb_peer_parts parts;
    struct gb_peer_tls tls;
    struct gb_peer_ucx ucx; /* all zero: not used */
    struct gb_peer_copies copies;
    struct gb_peer_fetches *fetches;
    struct gb_peer_serve *serve;
    struct gb_peer_publisher *publisher;
    struct gb_peer_query *query; /* NULL: nobody may ask */
    struct gb_peer_figures figures;
    bool names_known; /* the directory is there */
    bool synced;      /* all objects of the daemon were told */
    uv_timer_t early;
    uv_signal_t signals[3];
    int status;
};

static int refuse(const struct gb_error *error)
{
    fprintf(stderr, "gpubufd-peer: %s\n", error->message);
    return EXIT_NOT_STARTED;
}

/* ---- the daemon's side ---- */

static void on_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg)
{
    struct peer *peer = arg;

    if (wanted->ended)
        gb_peer_fetches_leave(peer->fetches, wanted->request);
    else
        gb_peer_fetches_want(peer->fetches, wanted->name, wanted->request, wanted->uid);
}

/* Takes over a copy that a peer before this one has made. */
static void adopt_copy(struct peer *peer, const struct gpubuf_info *info)
{
    char origin[GB_PEER_NODE_BYTES];
    uint64_t revision;

    if (!peer->synced && info->uid == geteuid() && info->scope == GPUBUF_SCOPE_LOCAL &&
        !gb_peer_copies_find(&peer->copies, info->name) &&
        gb_peer_copies_read(info->note, origin, &revision))
        (void)gb_peer_copies_add(&peer->copies, info->name, info->version, origin, revision);
}

static void check_copy(void *item, void *user)
{
    const struct gb_peer_copy *copy = item;
    struct peer *peer = user;
    struct gb_peer_directory *directory = peer->parts.directory;
    struct gb_peer_listed one;
    struct gb_error unused;

    int count = directory->methods->list(directory, copy->name, NULL, &one, 1, &unused);
    bool is_there = count == 1 && strcmp(one.name, copy->name) == 0;
    if (count < 0)
        return;
    gb_peer_fetches_changed(peer->fetches, copy->name, is_there ? one.revision : 0);
    if (is_there && one.revision == copy->revision)
        directory->methods->copied(directory, copy->name, copy->revision, copy->version);
}

/* Compares the copies with the directory, once both are known: what they were made of may have
   changed while nobody looked. */
static void check_copies(struct peer *peer)
{
    if (peer->synced && peer->names_known)
        gb_peer_tree_each(peer->copies.tree, check_copy, peer);
}

static void forget_copy(struct peer *peer, const struct gb_peer_copy *copy)
{
    struct gb_peer_directory *directory = peer->parts.directory;

    directory->methods->copied(directory, copy->name, copy->revision, 0);
    gb_peer_copies_remove(&peer->copies, copy->name);
}

/* A new daemon has other objects, whose versions begin at 1 again. */
static void on_reconnected(struct peer *peer)
{
    const char *instance = gpubuf_instance(peer->local.client);
    bool anew = strcmp(instance, peer->instance) != 0;

    peer->synced = false;
    gb_peer_publisher_reconnected(peer->publisher, anew);
    if (!anew)
        return;
    snprintf(peer->instance, sizeof(peer->instance), "%s", instance);
    while (peer->copies.tree)
        forget_copy(peer, *(struct gb_peer_copy **)peer->copies.tree);
    gb_peer_words_forget(peer->parts.words);
}

/* The name means that version now; 0: nothing. */
static void name_means(struct peer *peer, const char *name, uint64_t version)
{
    const struct gb_peer_copy *copy = gb_peer_copies_find(&peer->copies, name);

    gb_peer_words_changed(peer->parts.words, name, version);
    if (copy && copy->version != version)
        forget_copy(peer, copy);
}

static void on_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
    struct peer *peer = arg;

    if (strcmp(kind, "reconnected") == 0)
        on_reconnected(peer);
    if (strcmp(kind, "synced") == 0) {
        peer->synced = true;
        check_copies(peer);
        gb_peer_publisher_synced(peer->publisher);
    }
    bool sealed = strcmp(kind, "sealed") == 0;
    if (!info || (!sealed && strcmp(kind, "deleted") != 0 && strcmp(kind, "evicted") != 0 &&
                  strcmp(kind, "withdrawn") != 0))
        return; /* its name means what it meant */
    name_means(peer, info->name, sealed ? info->version : 0);
    if (sealed)
        adopt_copy(peer, info);
    gb_peer_publisher_on_object(peer->publisher, info, sealed && gb_peer_described_publishes(info));
}

static void on_lost(void *user)
{
    struct peer *peer = user;

    gb_log(GB_LOG_ERROR, "daemon ended for good",
           GB_LOG_TEXT("why", gpubuf_errmsg(peer->local.client)));
    peer->status = EXIT_LOST;
    uv_stop(&peer->loop);
}

static int library_failure(const struct peer *peer, int code, const char *what,
                           struct gb_error *error)
{
    const char *sentence = gpubuf_errmsg(peer->local.client);

    return gb_fail(error, code, "%s: %s", what, sentence[0] ? sentence : gpubuf_strerror(code));
}

static int connect_to_daemon(struct peer *peer, struct gb_error *error)
{
    const struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = peer->options.socket,
        .client_name = "gpubufd-peer",
        .resume_ms = -1,
        .cache_leases = GPUBUF_NO_CACHE, /* whoever fetches has the object from then on */
    };
    int r = gpubuf_connect(&peer->local.client, &options);

    if (r < 0)
        return library_failure(peer, r, "cannot connect to gpubufd", error);
    snprintf(peer->instance, sizeof(peer->instance), "%s", gpubuf_instance(peer->local.client));
    peer->local.lost = on_lost;
    peer->local.user = peer;
    r = gb_peer_local_start(&peer->local, &peer->loop);
    return r < 0 ? gb_fail(error, GPUBUF_E_SYSTEM, "%s", uv_strerror(r)) : 0;
}

static int provide(struct peer *peer, struct gb_error *error)
{
    struct gpubuf_client *client = peer->local.client;
    const struct gb_peer_options *options = &peer->options;

    peer->publisher = gb_peer_publisher_new(&peer->parts, options->user_names);
    if (!peer->publisher)
        return gb_fail_memory(error);
    int r = gpubuf_watch(client, NULL, on_event, peer, NULL);
    if (r < 0)
        return library_failure(peer, r, "the daemon cannot be watched", error);
    for (size_t i = 0; options->prefixes[i] || i == 0; i++) {
        const char *prefix = options->prefixes[i];
        r = gpubuf_provide(client, prefix ? prefix : "", on_wanted, peer);
        if (r < 0)
            return library_failure(peer, r, "cannot provide names", error);
    }
    return 0;
}

/* ---- the directory ---- */

static void on_changed(void *user, const char *name, uint64_t revision)
{
    struct peer *peer = user;

    gb_peer_fetches_changed(peer->fetches, name, revision);
    if (revision && peer->names_known)
        gb_peer_fetches_again(peer->fetches, name);
    gb_peer_publisher_changed(peer->publisher, name, revision);
}

/* The directory is not there yet: who waits is told so. */
static void on_late(uv_timer_t *timer)
{
    struct peer *peer = timer->data;

    peer->parts.late = true;
    if (!peer->names_known)
        gb_peer_fetches_again(peer->fetches, NULL);
}

static void on_state(void *user, const char *why, bool forgot)
{
    struct peer *peer = user;

    if (why)
        gb_log(GB_LOG_WARNING, "names of other machines unavailable", GB_LOG_TEXT("why", why));
    else
        gb_log(GB_LOG_INFO, "names of other machines received");
    gb_peer_publisher_state(peer->publisher, !why, forgot);
    peer->names_known = !why;
    peer->figures.joined += !why;
    if (why)
        return;
    check_copies(peer);
    gb_peer_fetches_again(peer->fetches,
                          NULL); /* names that the directory told during the listing, too */
}

static int directory_in_etcd(struct peer *peer, struct gb_error *error)
{
    const struct gb_peer_options *options = &peer->options;
    struct gb_peer_directory_etcd_settings settings = {
        .etcd = {.ca = options->etcd_authority,
                 .certificate = options->etcd_certificate,
                 .key = options->etcd_key,
                 .figures = &peer->figures},
        .root = options->root,
        .node = peer->tls.node,
        .host = options->advertise,
        .port = options->advertise_port,
        .ttl_s = options->lease_seconds,
        .events = {peer, on_changed, on_state},
    };

    /* A lease of a peer that was killed here may have to end first. */
    (void)uv_timer_init(&peer->loop, &peer->early);
    peer->early.data = peer;
    (void)uv_timer_start(&peer->early, on_late, (uint64_t)options->lease_seconds * 1000 + LATE_MS,
                         0);
    for (size_t i = 0; options->etcd[i]; i++)
        settings.etcd.endpoints[settings.etcd.endpoint_count++] = options->etcd[i];
    return gb_peer_directory_etcd_create(&peer->loop, &settings, &peer->parts.directory, error);
}

/* ---- signals ---- */

static void on_end_signal(uv_signal_t *handle, int number)
{
    struct peer *peer = handle->data;

    gb_log(GB_LOG_INFO, "stopping");
    uv_stop(&peer->loop);
}

/* New certificates hold for connections that are made from now on. */
static void on_hangup(uv_signal_t *handle, int number)
{
    struct peer *peer = handle->data;
    const struct gb_peer_options *options = &peer->options;
    struct gb_peer_tls tls;
    struct gb_error error;

    if (gb_peer_tls_init(&tls, options->authority, options->certificate, options->key, &error) <
        0) {
        gb_log(GB_LOG_ERROR, "certificates not reloaded", GB_LOG_TEXT("why", error.message));
        return;
    }
    if (strcmp(tls.node, peer->tls.node) != 0) {
        (void)gb_fail(&error, GPUBUF_E_INVALID, "%s is another node than %s", tls.node,
                      peer->tls.node);
        gb_log(GB_LOG_ERROR, "certificates not reloaded", GB_LOG_TEXT("why", error.message));
        gb_peer_tls_end(&tls);
        return;
    }
    gb_peer_tls_end(&peer->tls);
    peer->tls = tls;
    gb_log(GB_LOG_INFO, "certificates reloaded");
}

static void start_signals(struct peer *peer)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

    for (int i = 0; i < 3; i++) {
        (void)uv_signal_init(&peer->loop, &peer->signals[i]);
        peer->signals[i].data = peer;
        (void)uv_signal_start(&peer->signals[i], numbers[i] == SIGHUP ? on_hangup : on_end_signal,
                              numbers[i]);
    }
}

/* ---- questions of this machine's programs ---- */

static void write_metrics(struct gb_writer *writer, void *user)
{
    struct peer *peer = user;
    struct gb_peer_state state = {
        .figures = &peer->figures,
        .directory = peer->names_known,
        .clients = gb_peer_serve_connected(peer->serve),
        .servers = gb_peer_remotes_connected(peer->parts.remotes),
        .copies = peer->copies.count,
        .published = gb_peer_publisher_figures(peer->publisher),
    };

    gb_peer_metrics_write(writer, &state);
}

static int answer_questions(struct peer *peer, struct gb_error *error)
{
    if (!peer->options.query)
        return 0;
    return gb_peer_query_new(&peer->query, &peer->parts, write_metrics, peer, error);
}

/* ---- the whole ---- */

/* Without UCX, content goes over TLS. */
static void use_ucx(struct peer *peer)
{
    struct gb_error error;

    if (!peer->options.ucx)
        return;
    if (gb_peer_ucx_open(&peer->ucx, &error) < 0)
        gb_log(GB_LOG_WARNING, "UCX not used", GB_LOG_TEXT("why", error.message));
    else
        peer->parts.ucx = &peer->ucx;
}

static int start_parts(struct peer *peer, struct gb_error *error)
{
    const struct gb_peer_options *options = &peer->options;
    struct gb_peer_parts *parts = &peer->parts;

    *parts = (struct gb_peer_parts){.options = options,
                                    .loop = &peer->loop,
                                    .client = peer->local.client,
                                    .tls = &peer->tls,
                                    .copies = &peer->copies,
                                    .figures = &peer->figures};
    use_ucx(peer);
    parts->remotes = gb_peer_remotes_new(parts, options->patience_ms);
    if (parts->remotes && directory_in_etcd(peer, error) < 0)
        return error->code;
    if (parts->directory)
        peer->fetches = gb_peer_fetches_new(parts);
    if (peer->fetches)
        parts->words = gb_peer_words_new(&peer->loop, parts->directory);
    if (!parts->words)
        return gb_fail_memory(error);
    return gb_peer_serve_new(&peer->serve, parts, error);
}

/* Ends all parts that were started: first those that answer waiting calls, then those that had made
   the calls. */
static void stop(struct peer *peer)
{
    gb_peer_query_close(peer->query);
    if (peer->fetches)
        gb_peer_fetches_stop(peer->fetches);
    if (peer->serve)
        gb_peer_serve_close(peer->serve);
    if (peer->parts.remotes)
        gb_peer_remotes_close(peer->parts.remotes);
    /* The handles of etcd would keep the loop running; no request to it waits any more. */
    if (peer->parts.directory) {
        peer->parts.directory->methods->close(peer->parts.directory);
        gb_peer_publisher_free(peer->publisher);
        peer->parts.directory = NULL;
    }
    if (peer->local.prepare.data)
        gb_peer_local_stop(&peer->local);
    gpubuf_disconnect(peer->local.client);
    gb_peer_words_free(peer->parts.words);
    gb_peer_fetches_free(peer->fetches);
    if (peer->early.data)
        uv_close((uv_handle_t *)&peer->early, NULL);
    for (int i = 0; i < 3; i++)
        if (peer->signals[i].data)
            uv_close((uv_handle_t *)&peer->signals[i], NULL);
    (void)uv_run(&peer->loop, UV_RUN_DEFAULT);
    gb_peer_ucx_close(&peer->ucx);
    gb_peer_copies_end(&peer->copies);
    gb_peer_tls_end(&peer->tls);
    (void)uv_loop_close(&peer->loop);
}

static int run(struct peer *peer)
{
    const struct gb_peer_options *options = &peer->options;
    struct gb_error error;

    int r = uv_loop_init(&peer->loop);
    if (r != 0) {
        (void)gb_fail(&error, GPUBUF_E_SYSTEM, "cannot make an event loop: %s", uv_strerror(r));
        return refuse(&error);
    }
    r = gb_peer_tls_init(&peer->tls, options->authority, options->certificate, options->key,
                         &error);
    if (r == 0)
        r = connect_to_daemon(peer, &error);
    if (r == 0)
        r = start_parts(peer, &error);
    if (r == 0)
        r = provide(peer, &error);
    if (r == 0)
        r = answer_questions(peer, &error);
    if (r == 0) {
        start_signals(peer);
        gb_log(GB_LOG_INFO, "listening", GB_LOG_TEXT("node", peer->tls.node),
               GB_LOG_NUMBER("port", gb_peer_serve_port(peer->serve)));
        (void)uv_run(&peer->loop, UV_RUN_DEFAULT);
    }
    stop(peer);
    return r < 0 ? refuse(&error) : peer->status;
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    struct gb_error error;
    int status = EXIT_OK;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)setenv("UV_THREADPOOL_SIZE", "16", 0); /* chunks, sums, and waits for GPUs */
    if (!peer)
        return EXIT_NOT_STARTED;
    if (gb_peer_options_read(&peer->options, argv, &error) < 0) {
        status = refuse(&error);
    } else if (peer->options.help) {
        gb_peer_options_help();
    } else if (peer->options.version) {
        printf("gpubufd-peer %s\n", gpubuf_version());
    } else {
        gb_log_setup(peer->options.log_level, peer->options.log_json);
        raise_descriptor_limit();
        status = run(peer);
    }
    gb_peer_options_end(&peer->options);
    free(peer);
    uv_library_shutdown(); /* joins its threads, which have memory of OpenSSL's */
    return status;
}
