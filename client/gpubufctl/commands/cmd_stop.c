/* gpubufctl stop: ends the daemon, and its supervisor. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/doctor/daemon_place.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

#define STOP_MS 30000 /* a supervisor kills a daemon that takes longer than 20 s */

void gb_cmd_stop(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct gb_daemon_place place;

    (void)args;
    gb_cli_connect(cli); /* it is a daemon that listens there */
    gb_daemon_place_find(&place, cli);
    int error = gb_daemon_place_ask(&place);
    if (error != 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s: %s", place.path, strerror(error));
    int pid = (int)place.peer.pid;
    if (!place.is_gpubufd)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%s: no gpubufd listens there that this machine's /proc shows, but pid %d: end "
                    "it where it was started (systemctl stop gpubufd)",
                    place.path, pid);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 || kill(pid, SIGTERM) < 0)
        gb_cli_fail(GB_STATUS_FAILED, "cannot stop the daemon, pid %d of user %s: %s", pid,
                    gb_user(place.peer.uid).text, strerror(errno));
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    if (poll(&ended, 1, STOP_MS) <= 0)
        gb_cli_fail(GB_STATUS_TIMEOUT, "the daemon, pid %d, has not ended within %d s", pid,
                    STOP_MS / 1000);
    close(fd);
    if (cli->json)
        gb_cjson_print_pattern("{'pid':%d}", pid);
    else
        printf("the daemon at %s has ended\n", place.path);
}
