/*
 * `gpubufd --supervise`: a parent that does for the daemon what systemd does, where there is none,
 * by the same protocol (notify.h): it listens, keeps the descriptors that it is given, starts the
 * daemon again when it has died or its watchdog has not heard of it, and hands over what it keeps.
 *
 * SIGTERM and SIGINT stop both, and what was kept goes. SIGHUP has the daemon hand over to a new
 * one, started from the program's file as it is then. It knows nothing of what the descriptors are.
 */
#ifndef GB_SUPERVISE_H
#define GB_SUPERVISE_H

#include "daemon/config.h"

/* Returns the exit status, after the daemon has ended for good. `argv` is this program's own. */
int gb_supervise(const struct gb_config *config, char **argv);

#endif
