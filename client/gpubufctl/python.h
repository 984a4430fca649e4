/*
 * Files that Python's libraries read and write: Arrow's and Parquet (pyarrow), .npz (NumPy). For
 * these there is no C library in the distributions, so that gpubufctl hands them to the Python
 * package, by a process of its own, and tells its failures as if they were its own.
 */
#ifndef GB_PYTHON_H
#define GB_PYTHON_H

#include <cjson/cJSON.h>

#include "cli.h"

/* The format of a file that is Python's, by its name, or by its first bytes (may be none): "arrow",
   "arrows", "parquet", "npz". NULL: it is none of them. */
const char *gb_python_format(const char *file, const void *start, size_t length);

/* Whether this is the name of such a format. */
bool gb_python_is_format(const char *name);

/*
 * Has `request` done (client/python/gpubufd/_gpubufctl.py says what is in it); the socket is added.
 * `what` is the file, for messages. 0 and the names that were published, to be deleted; or a
 * status, which has been told.
 */
int gb_python_run(const struct gb_cli *cli, cJSON *request, const char *what, cJSON **names);

#endif
