/*
 * Signals and progress in calls of libgpubuf that take long. The library calls progress_tell() some
 * times in a second, which runs Python's signal handlers, and tells the package how much was
 * copied. An exception of theirs is kept for the thread until the call has ended.
 */
#ifndef GPUBUFD_PROGRESS_H
#define GPUBUFD_PROGRESS_H

#include "client/python/src/core.h"

/* The progress of gpubuf_connect_options. */
int progress_tell(void *arg, uint64_t bytes);
/* Tells the package of bytes that were copied. With the GIL; -1 with an exception. */
int progress_copied(uint64_t bytes);
/* Raises what progress_tell() has kept; false: nothing. */
bool progress_raise(void);

/* on_copied(callable): has it called with each number of bytes that were copied. */
PyObject *core_on_copied(PyObject *module, PyObject *callable);

#endif
