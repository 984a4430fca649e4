/* Objects as Arrow C Device structs: those of the host, with the device and the event to wait
   for. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/data/arrow_export.h"
#include "client/lib/memory/gpu_event.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/wait_ready.h"
#include "client/lib/wire/report.h"

/* The private data of an array with an event: it wraps the array that was exported. */
struct device_array {
    struct ArrowArray array;
    struct gb_gpu_event *held;
    CUevent event; /* what sync_event points to */
};

static void device_array_release(struct ArrowArray *array)
{
    struct device_array *device = array->private_data;

    /* In a child of fork the process' own memory is freed, and nothing else is touched. */
    bool forked = device->held && !gb_gpu_is_ours();
    device->array.release(&device->array);
    if (!forked)
        gb_gpu_event_drop(device->held);
    free(device);
    array->release = NULL;
}

/* `event` (may be NULL) is taken over. */
static int wrap(struct ArrowArray *array, struct gb_gpu_event *event, struct device_array **out)
{
    struct device_array *device = calloc(1, sizeof(*device));

    if (!device)
        return GPUBUF_E_NO_MEMORY;
    device->array = *array;
    device->held = event;
    if (event)
        device->event = event->event;
    array->private_data = device;
    array->release = device_array_release;
    *out = device;
    return 0;
}

int gpubuf_export_arrow_device(struct gpubuf_object *object, struct ArrowSchema *schema,
                               struct ArrowDeviceArray *array)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gpubuf_client *client = object->lease->client;
    struct gb_gpu_event *event = NULL;
    struct gb_error error;
    struct gb_gpu *gpu;
    r = gb_client_lease_gpu(object->lease, &gpu, &error);
    if (r < 0)
        return gb_report(client, &error);
    if (!array)
        return gb_export_arrow(object, schema, NULL);
    if (gpu)
        r = gb_ready_event(object->lease, &event);
    if (r < 0)
        return r;

    struct ArrowSchema made_schema;
    struct ArrowDeviceArray made = {
        .device_id = gpu ? gpu->ordinal : -1,
        .device_type = !gpu                          ? ARROW_DEVICE_CPU
                       : gpu->cuda->driver == GB_HIP ? ARROW_DEVICE_ROCM
                                                     : ARROW_DEVICE_CUDA,
    };
    struct device_array *device;
    r = gb_export_arrow(object, schema ? &made_schema : NULL, &made.array);
    if (r < 0) {
        gb_gpu_event_drop(event);
        return r;
    }
    if (event) {
        if (wrap(&made.array, event, &device) < 0) {
            made.array.release(&made.array);
            if (schema)
                made_schema.release(&made_schema);
            gb_gpu_event_drop(event);
            return gb_report_memory(client);
        }
        made.sync_event = &device->event;
    }
    *array = made;
    if (schema)
        *schema = made_schema;
    return 0;
}
