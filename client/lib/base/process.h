/*
 * Which process this is, and how it ends. A child of fork has a copy of all its parent's memory.
 * Each process has a *generation* of its own, by which the library tells what is the parent's, and
 * not for the child to touch.
 *
 * At exit the CUDA driver ends before this library does, and the library has a thread that calls
 * the driver (wire/flusher.h). So the flusher registers here how to stop its thread, and the code
 * that starts the driver has the thread stopped first.
 */
#ifndef GB_LIB_PROCESS_H
#define GB_LIB_PROCESS_H

#include <stdbool.h>

/* This process' generation: another one in a child of fork. Never 0. Any thread. */
unsigned gb_generation(void);
/* Whether the process can have `count` more descriptors (up to 16); false with errno. To be asked
   before it becomes a writer: an answer that loses its descriptors ends the connection, and the
   daemon cannot tell that the process does not write. Any thread. */
bool gb_process_has_room(unsigned count);
/* To be called in the child of a fork. */
void gb_process_forked(void);

/* Sets the function that stops the library's thread. To be called before anything starts the
   driver. */
void gb_process_at_end(void (*stop)(void));
/* Has the thread stopped at exit, before everything that atexit was given until now. False if
   memory is out. */
bool gb_process_stop_at_exit(void);

#endif
