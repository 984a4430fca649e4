/* trim: gives empty segments back to their device. */
#include <inttypes.h>

#include "daemon/methods/call.h"
#include "daemon/store/store.h"

struct trim_params {
    struct gb_string device;
};

static const struct gb_field trim_fields[] = {
    GB_FIELD(struct trim_params, device, GB_FIELD_STRING, 0, 0, 64),
};

/* Memory that is being given back counts as freed, so that the speed of a driver makes no
   difference. */
static uint64_t trim(struct gb_store *store, struct gb_device *device)
{
    uint64_t freeing = device->freeing;
    uint64_t freed = gb_store_trim(store, device, UINT64_MAX);

    return freed + device->freeing - freeing;
}

static int handle_trim(struct gb_call *call, const void *p)
{
    const struct trim_params *params = p;
    struct gb_device *device;
    uint64_t freed = 0;

    if (params->device.text && gb_call_device(call, &params->device, &device) < 0)
        return call->error.code;
    for (unsigned i = 0; i < call->server->device_count; i++)
        if (!params->device.text || call->server->devices[i] == device)
            freed += trim(&call->server->store, call->server->devices[i]);
    gb_call_begin_result(call);
    gb_write_format(call->writer, "{\"freed\":%" PRIu64 "}", freed);
    return GB_DONE;
}

const struct gb_method gb_method_trim = {
    GB_METHOD_ROW("trim", GB_METHOD_ADMIN, trim_fields, handle_trim, struct trim_params)};
