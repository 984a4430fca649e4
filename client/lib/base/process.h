/*
 * Which process this is, and how it ends. A child of fork is another process than its parent,
 * though it has a copy of all its memory: each has a *generation* of its own, by which the library
 * tells what is not the child's to touch.
 *
 * At exit the CUDA driver ends before this library does. Whoever has a thread that calls the driver
 * says here how to stop it; whoever starts the driver sees to it that this happens first.
 */
#ifndef GB_LIB_PROCESS_H
#define GB_LIB_PROCESS_H

#include <stdbool.h>

/* The process's: another in a child of fork. Never 0. Any thread. */
unsigned gb_generation(void);
/* In the child of a fork. */
void gb_process_forked(void);

/* Sets what stops the library's thread. Before anything may start the driver. */
void gb_process_at_end(void (*stop)(void));
/* Stops it before whatever was registered for the exit until now. False if memory is out. */
bool gb_process_stop_at_exit(void);

#endif
