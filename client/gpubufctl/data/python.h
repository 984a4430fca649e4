/*
 * Files that Python's libraries read and write: Arrow's and Parquet (pyarrow), .npy and .npz
 * (NumPy), lines of JSON. gpubufctl starts the Python package in a process of its own to read or
 * write them, and tells that process's failures like its own.
 */
#ifndef GB_PYTHON_H
#define GB_PYTHON_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"

/* The format of a file that the Python package reads or writes, by its name or by its first bytes
   (length may be 0): "arrow", "arrows", "parquet", "npy", "npz", "jsonl".
   NULL: it is none of them. */
const char *gb_python_format(const char *file, const void *start, size_t length);

/* Whether this is the name of such a format. */
bool gb_python_is_format(const char *name);

/*
 * Has the Python package do `request` (client/python/gpubufd/_gpubufctl.py says what is in it),
 * which is taken over; the socket is added. `what` is the file, for messages. The names that were
 * published, to be deleted.
 */
cJSON *gb_python_run(const struct gb_cli *cli, cJSON *request, const char *what);

#endif
