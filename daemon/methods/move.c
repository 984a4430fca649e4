/* move: moves an object on request, before room is short or before it is opened. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/call.h"
#include "daemon/methods/space.h"
#include "daemon/objects/lease.h"
#include "daemon/spill/tiers.h"

struct move_params {
    struct gb_string name, label, tier;
    uint64_t version, wait_ms;
};

static const struct gb_field move_fields[] = {
    GB_FIELD(struct move_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct move_params, tier, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct move_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms)),
    GB_WHICH_FIELDS(struct move_params),
};

/* Reads the tier; if it is absent, takes the first tier that the device has. */
static int read_tier(struct gb_call *call, const struct gb_string *text,
                     const struct gb_device *device, enum gb_tier_kind *tier)
{
    bool known = !text->text;

    for (int i = 0; i < GB_TIERS; i++) {
        bool meant = !text->text || strcmp(text->text, gb_tier_name((enum gb_tier_kind)i)) == 0;

        known |= meant;
        *tier = (enum gb_tier_kind)i;
        if (meant && gb_spill_has(&call->server->spill, device, *tier))
            return 0;
    }
    if (!known)
        return gb_fail_at(&call->error, GB_PARAM("tier"),
                          "expected \"device\", \"host\" or \"disk\", found \"%.32s\"", text->text);
    return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                   "there is no %s%stier below %s; --tier makes one", text->text ? text->text : "",
                   text->text ? " " : "", device->id);
}

static int check_free(struct gb_call *call, const struct gb_string *name,
                      const struct gb_storage *storage)
{
    uint64_t grace_until = call->server->state.grace_until, now = gb_now_ms(), kept = 0;
    char grace[80] = "";

    if (!storage->resident || storage->recent.holds == 0)
        return 0;
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        kept += object->kept;
    if (kept > 0)
        snprintf(grace, sizeof(grace),
                 ", and grace for readers of the daemon that crashed, %" PRIu64 " s more",
                 grace_until > now ? (grace_until - now + 999) / 1000 : 0);
    return gb_call_fail_name(
        call, GPUBUF_E_BUSY, name,
        "\"%s\" cannot leave: %" PRIu64 " leases, %" PRIu32 " pins or keeps%s%s", name->text,
        storage->leases - kept, storage->pins, grace,
        storage->leases + storage->pins < storage->recent.holds ? ", and work that is not done"
                                                                : "");
}

static int move_out(struct gb_call *call, const struct move_params *params,
                    const struct gb_which *which)
{
    struct gb_demand demand = {.reserve = 0};
    struct gb_storage *storage;
    struct gb_object *object;
    enum gb_tier_kind tier = GB_TIER_HOST;
    unsigned recalled = 0;
    int r = gb_call_find_changeable(call, &params->name, which, &object);

    if (r == 0)
        r = read_tier(call, &params->tier, object->storage->key.device, &tier);
    if (r == 0)
        r = gb_call_move_failure(call, object->storage);
    if (r < 0)
        return r;
    storage = object->storage;
    if (gb_storage_recall(&call->server->registry, storage, gb_now_ms(), &recalled))
        return gb_call_wait_tier(call, storage->key.device, GB_TIERS);
    r = check_free(call, &params->name, storage);
    if (r < 0)
        return r;
    demand.device = storage->key.device;
    gb_call_demand(call, &demand);
    r = gb_evict_to(&call->server->spill, storage, tier, &demand, &call->error);
    if (r == GPUBUF_E_NO_SPACE &&
        gb_users_unpark(&call->server->registry, storage->key.device, storage))
        return gb_call_wait_tier(call, storage->key.device, tier);
    if (r == GB_LEAVES)
        return gb_call_wait_move(call, storage, NULL);
    if (r == GB_LEAVES_LATER)
        return gb_call_wait_tier(call, storage->key.device, demand.full_tier);
    return r < 0 ? r : gb_call_empty(call);
}

static int move_back(struct gb_call *call, const struct move_params *params,
                     const struct gb_which *which)
{
    struct gb_object *object;
    int r = gb_call_find_which(call, &params->name, which, &object);

    if (r == GPUBUF_E_NOT_FOUND && call->wait && gb_wait_failure(call->wait))
        return gb_call_fail_name(call, GPUBUF_E_DEVICE, &params->name, "\"%s\" is lost: %.400s",
                                 params->name.text, gb_wait_failure(call->wait)->message);
    if (r == 0)
        r = gb_call_restore(call, object, NULL, params->wait_ms);
    return r == 0 ? gb_call_empty(call) : r;
}

static int handle_move(struct gb_call *call, const void *p)
{
    const struct move_params *params = p;
    const struct gb_which which = {params->version, params->label, false};

    if (params->tier.text && strcmp(params->tier.text, "device") == 0)
        return move_back(call, params, &which);
    if (params->wait_ms > 0)
        return gb_fail_at(&call->error, GB_PARAM("wait_ms"), "goes with the tier \"device\"");
    return move_out(call, params, &which);
}

const struct gb_method gb_method_move = {
    GB_METHOD_ROW("move", 0, move_fields, handle_move, struct move_params)};
