/* The program's own say in calls that take long. Without the client's lock. */
#ifndef GB_LIB_PROGRESS_H
#define GB_LIB_PROGRESS_H

#include "client/lib/wire/client.h"

#define GB_PROGRESS_MS 25 /* between two calls of the program's function */
/* The most bytes that are copied between two, by the processor and by a GPU: some milliseconds. */
#define GB_PROGRESS_PIECE (UINT64_C(8) << 20)
#define GB_PROGRESS_GPU_PIECE (UINT64_C(256) << 20)

/* How many of `bytes` to copy before gb_progress(): all, if the program does not ask for it. */
static inline uint64_t gb_progress_piece(const struct gpubuf_client *client, uint64_t bytes,
                                         uint64_t most)
{
    return client->progress.report && bytes > most ? most : bytes;
}

/* Notes that the thread has copied `bytes` more, and calls the function if it is due. Reports
   GPUBUF_E_CANCELED: the call is to end. */
int gb_progress(struct gpubuf_client *client, uint64_t bytes);

#endif
