/*
 * `gpubufd --supervise`: a parent process that does for the daemon what systemd does, where there
 * is no systemd, by the same protocol (notify.h). It listens, and keeps the descriptors that the
 * daemon sends it, without knowing what they are. It starts the daemon again when that has died, or
 * has given no sign of life for too long, and hands over what it keeps.
 *
 * SIGTERM and SIGINT stop both processes, and kept descriptors are closed; a daemon that ends for
 * good (SIGINT, --idle-exit) does so, too. SIGHUP has the daemon hand over to a new one, which is
 * started from the program's file as it is then.
 */
#ifndef GB_SUPERVISE_H
#define GB_SUPERVISE_H

#include "daemon/config.h"

/* Returns the exit status, after the daemon has ended for good. `argv` is this program's own. */
int gb_supervise(const struct gb_config *config, char **argv);

#endif
