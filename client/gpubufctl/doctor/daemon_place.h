/* Where the daemon's socket is, and which process listens there. */
#ifndef GB_DAEMON_PLACE_H
#define GB_DAEMON_PLACE_H

#include <limits.h>
#include <sys/socket.h>

#include "client/gpubufctl/cli/cli.h"

struct gb_daemon_place {
    const char *path, *why; /* where the path comes from, as a phrase */
    char buffer[PATH_MAX];
    struct ucred peer;              /* the process that listens, as the kernel says */
    bool is_gpubufd, is_supervisor; /* that process; its child is the daemon then */
};

/* The socket that the library connects to. */
void gb_daemon_place_find(struct gb_daemon_place *place, const struct gb_cli *cli);
/* Fills in the process. 0, or an errno: nobody can be connected to. */
int gb_daemon_place_ask(struct gb_daemon_place *place);

#endif
