/*
 * Other processes: whether one can still run. Any thread may call these.
 */
#ifndef GB_PROCESS_H
#define GB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the process that connected the socket, as the kernel noted it then; of an older
   kernel (before 6.5), of the process that has that pid now. -1, with errno; ESRCH: it has ended,
   and its parent knows. */
int gb_process_of(int socket, pid_t pid);
/* A descriptor of the process that has that pid and was started then. -1, with errno. ESRCH: it has
   ended. Any other: it cannot be told, and the process may still run. */
int gb_process_find(pid_t pid, uint64_t started);
/* When the process was started, in ticks since the machine was: with its pid it means one process
   and no later one. -1, with errno. ENOENT: there is no such process, or it is hidden from us. */
int gb_process_started(pid_t pid, uint64_t *started);
/* Whether the process of that descriptor has ended: all that it had is given back, and what it had
   launched on a GPU is over. */
bool gb_process_has_exited(int fd);

#endif
