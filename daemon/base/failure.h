/* Failures of system calls, as errors for clients. */
#ifndef GB_FAILURE_H
#define GB_FAILURE_H

#include "proto/base/errors.h"

/* As gb_fail_errno(), with GPUBUF_E_DEVICE; or GPUBUF_E_LIMIT (open_files) if descriptors are out.
   How many may be open is the system's limit, not ours, and the next try may succeed. */
int gb_fail_call(struct gb_error *error, const char *what);

/* Whether that code says that memory or descriptors are out: the next try may succeed. */
static inline bool gb_is_passing(int code)
{
    return code == GPUBUF_E_NO_MEMORY || code == GPUBUF_E_LIMIT;
}

#endif
