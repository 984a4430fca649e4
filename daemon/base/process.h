/*
 * Other processes: whether one can still run. Any thread may call these.
 */
#ifndef GB_PROCESS_H
#define GB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the process that connected the socket, as the kernel noted it then; of an older
   kernel (before 6.5), of the process that has that pid now. -1, with errno. */
int gb_process_of(int socket, pid_t pid);
/* A descriptor of the process that has that pid and was started then; -1: there is none. */
int gb_process_find(pid_t pid, uint64_t started);
/* When the process was started, in ticks since the machine was: with its pid it means one process
   and no later one. 0: it cannot be told. */
uint64_t gb_process_started(pid_t pid);
/* Whether the process of that descriptor has ended: all that it had is given back, and what it had
   launched on a GPU is over. */
bool gb_process_is_over(int fd);

#endif
