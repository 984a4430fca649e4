#include "client/lib/objects/ready.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/gpu_event.h"

struct gb_ready *gb_ready_new(const unsigned char handle[GB_IPC_BYTES], struct gb_gpu_event *event)
{
    struct gb_ready *ready = calloc(1, sizeof(*ready));

    if (!ready)
        return NULL;
    memcpy(ready->handle, handle, sizeof(ready->handle));
    ready->event = event;
    return ready;
}

void gb_ready_free(struct gb_ready *ready)
{
    if (!ready)
        return;
    gb_gpu_event_drop(ready->event);
    free(ready);
}
