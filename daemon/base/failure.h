/* Failures of system calls, for those who have asked for something. */
#ifndef GB_FAILURE_H
#define GB_FAILURE_H

#include "proto/base/errors.h"

/* As gb_fail_errno(), with GPUBUF_E_DEVICE; or GPUBUF_E_LIMIT (open_files) if descriptors are out.
   How many may be open is the system's limit, not ours, and the next try may succeed. */
int gb_fail_call(struct gb_error *error, const char *what);

#endif
