/* gpubufd: reads the configuration, starts the server, runs it. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "daemon/base/failpoint.h"
#include "daemon/config.h"
#include "daemon/methods/methods.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/flight.h"
#include "daemon/serve/wiring.h"
#include "daemon/spill/tiers.h"
#include "daemon/supervise.h"

#define FIRST_START_FDS 2 /* a socket and a channel; an earlier daemon left the others */

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_NOT_STARTED = 2, EXIT_HANDED_OVER = 75 };

static int refuse(const struct gb_error *error)
{
    fprintf(stderr, "gpubufd: %s\n", error->message);
    return EXIT_NOT_STARTED;
}

/* The memory of a message, up to a mebibyte, is not given back to the system each time, since it
   would come back page by page. Small pieces are joined with their neighbours when they are freed:
   joining all at once, at the end of a session with many leases, would take long. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
    mallopt(M_MXFAST, 0);
}

/* A session takes a descriptor, a segment some, so the limits on both follow from the limits on
   descriptors. */
static void count_descriptors(struct gb_config *config, const struct gb_notify *notify)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        if (limit.rlim_cur < limit.rlim_max) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(RLIMIT_NOFILE, &limit);
            getrlimit(RLIMIT_NOFILE, &limit);
        }
        config->open_files = limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur;
    }
    config->sent_files = config->open_files;
    if (config->open_files > 0 && notify->fd_count > FIRST_START_FDS)
        config->sent_files = gb_flight_measure(config->open_files);
    if (notify->socket >= 0)
        config->stored_files = notify->most_fds;
    gb_limits_fit(&config->limits, config->open_files, config->stored_files);
}

static int probe(const struct gb_server *server)
{
    struct gb_writer writer;
    int r = EXIT_FAILED;

    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"devices\":[");
    for (unsigned i = 0; i < server->device_count; i++) {
        gb_write_text(&writer, i > 0 ? ",\n " : "\n ");
        gb_device_write(&writer, server->devices[i], i == 0);
    }
    GB_WRITE_LITERAL(&writer, "\n]}\n");
    if (!writer.failed && fwrite(writer.data, 1, writer.length, stdout) == writer.length &&
        fflush(stdout) == 0)
        r = EXIT_OK;
    gb_writer_end(&writer);
    return r;
}

static int serve(struct gb_server *server, struct gb_notify *notify, struct gb_closer *closer,
                 struct gb_error *error)
{
    uv_loop_t loop;
    int status = EXIT_OK;

    server->notify = notify;
    server->closer = closer;
    signal(SIGPIPE, SIG_IGN);
    keep_memory();
    if (uv_loop_init(&loop) < 0) {
        gb_fail(error, GPUBUF_E_SYSTEM, "cannot make the event loop");
        gb_server_end(server);
        gb_closer_end(closer);
        return refuse(error);
    }
    gb_failpoints_begin();
    if (gb_server_listen(server, &loop, error) == 0)
        status = gb_server_run(server) ? EXIT_HANDED_OVER : EXIT_OK;
    else
        status = refuse(error);
    gb_server_end(server);
    GB_FAILPOINT(HAND_OVER_DONE);
    uv_loop_close(&loop);
    gb_closer_end(closer);
    return status;
}

/* Whether the daemon could start with these options. Devices are opened; of a tier the directory is
   checked, and not taken: the daemon that runs may have it. */
static int check(struct gb_config *config)
{
    static struct gb_server server;
    struct gb_error error;
    int r = gb_spill_check(&config->spill, &error);

    config->spill.host = 0;
    free(config->spill.dir);
    config->spill.dir = NULL;
    if (r == 0) {
        r = gb_server_init(&server, config, &gb_methods, &error);
        gb_server_end(&server);
    }
    if (r < 0)
        return refuse(&error);
    puts("The options are fine; devices can be opened, and tiers written.");
    return EXIT_OK;
}

/* Serves or probes, as the configuration asks for. */
static int run(struct gb_config *config, struct gb_notify *notify)
{
    static struct gb_server server;
    struct gb_closer *closer = NULL;
    struct gb_error error;
    int status;

    if (!config->probe && gb_notify_begin(notify, &error) < 0)
        return refuse(&error); /* before anything opens a descriptor of a number handed over */
    if (!config->probe && gb_closer_new(&closer, &error) < 0) /* before there are threads */
        return refuse(&error);
    if (!config->probe)
        count_descriptors(config, notify);
    config->spill.follows = gb_state_has_predecessor(notify);
    if (gb_server_init(&server, config, &gb_methods, &error) < 0) {
        gb_server_end(&server);
        gb_closer_end(closer);
        return refuse(&error);
    }
    gb_log_setup(config->log_level, config->log_json);
    if (!config->probe)
        return serve(&server, notify, closer, &error);
    status = probe(&server);
    gb_server_end(&server);
    return status;
}

int main(int argc, char **argv)
{
    struct gb_notify notify = GB_NOTIFY_NONE;
    struct gb_config config;
    struct gb_error error;
    int status;

    if (gb_config_read(&config, argv, &error) < 0) {
        status = refuse(&error);
    } else if (config.help) {
        gb_config_help();
        status = EXIT_OK;
    } else if (config.version) {
        printf("gpubufd %s\n", GPUBUF_VERSION);
        status = EXIT_OK;
    } else if (config.check) {
        status = check(&config);
    } else if (config.supervise && !config.probe) {
        gb_log_setup(config.log_level, config.log_json);
        status = gb_supervise(&config, argv);
    } else {
        status = run(&config, &notify);
    }
    gb_notify_end(&notify);
    gb_config_end(&config);
    return status;
}
