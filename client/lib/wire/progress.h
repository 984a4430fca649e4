/* The program's own say in calls that take long. Without the client's lock. */
#ifndef GB_LIB_PROGRESS_H
#define GB_LIB_PROGRESS_H

#include "client/lib/wire/client.h"

#define GB_PROGRESS_MS 25                     /* between two calls of the program's function */
#define GB_PROGRESS_PIECE (UINT64_C(8) << 20) /* the most bytes that are copied between two */

/* Notes that the thread has copied `bytes` more, and calls the function if it is due. Reports
   GPUBUF_E_CANCELED: the call is to end. */
int gb_progress(struct gpubuf_client *client, uint64_t bytes);

#endif
