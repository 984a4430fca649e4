/* The sentence about a device that has no room: where all of it is, why that does not leave, and
   what can be done. */
#include <inttypes.h>

#include "daemon/methods/space.h"

/* The most sessions that are compared for the sentence of an error, since that takes time. */
#define SESSIONS_COMPARED 1024

/* The session with the most bytes of the device under leases, among the first SESSIONS_COMPARED;
   NULL if none has any. */
static const struct gb_session *holds_most(const struct gb_call *call,
                                           const struct gb_device *device)
{
    const struct gb_session *found = NULL;
    unsigned compared = 0;

    GB_LIST_EACH(&call->server->sessions, const struct gb_session, session, of_server) {
        uint64_t bytes = session->holder.bytes[device->index];

        if (++compared > SESSIONS_COMPARED)
            break;
        if (bytes > (found ? found->holder.bytes[device->index] : 0))
            found = session;
    }
    return found;
}

/* Adds a figure to the list, unless it is 0. */
static void write_figure(struct gb_writer *writer, uint64_t bytes, const char *what)
{
    if (bytes > 0)
        gb_write_format(writer, ", %" PRIu64 " %s", bytes, what);
}

/* Tells where all of the device's capacity is: the figures add up to it. */
static void write_account(struct gb_writer *writer, const struct gb_device *device)
{
    uint64_t pinned = device->pinned - device->pinned_leased;
    uint64_t held =
        device->used - device->leased - pinned - device->recency.bytes - device->stay.bytes;
    uint64_t over = device->allocated > device->capacity ? device->allocated - device->capacity : 0;

    gb_write_format(writer, "of %" PRIu64, device->capacity);
    if (over > 0) /* an earlier daemon had more */
        gb_write_format(writer, " and %" PRIu64 " above it", over);
    gb_write_format(writer,
                    ", %" PRIu64 " are free, %" PRIu64 " leased, %" PRIu64 " pinned or kept",
                    gb_device_free_bytes(device), device->leased, pinned);
    write_figure(writer, held, "not ready or coming back for a request");
    write_figure(writer, device->stay.bytes, "not to be dropped and with no tier to go to");
    write_figure(writer, device->recency.bytes, "of objects that may leave");
    write_figure(writer, device->moving, "being made or given back");
    write_figure(writer, gb_device_retained(device) - device->moving, "free but split");
    write_figure(writer, device->pinned_by_clients, "mapped by clients after their release");
}

/* Tells how much room the tiers have, and why it does not do. */
static void write_tiers(const struct gb_call *call, const struct gb_demand *demand,
                        struct gb_writer *writer)
{
    const struct gb_spill *spill = &call->server->spill;
    uint64_t least, room = gb_evict_room(spill, demand->device, demand->reserve, &least);

    gb_write_format(writer, "; the tiers have room for %" PRIu64 " bytes", room);
    if (room < least)
        gb_write_format(writer,
                        ", and a new object of this size is refused below %" PRIu64
                        ", so that others can come back",
                        least);
    if (spill->tiers[GB_TIER_HOST].failing_until || spill->tiers[GB_TIER_DISK].failing_until)
        gb_write_text(writer, "; a tier failed lately");
}

/* Tells why objects that nobody holds do not leave, and what can be done about it. */
static void write_remedy(const struct gb_call *call, const struct gb_demand *demand,
                         struct gb_writer *writer)
{
    const struct gb_device *device = demand->device;

    if (device->recency.needed_bytes > 0 && !gb_demand_arrives(demand) &&
        gb_device_lacks(device, demand->need) == 0)
        write_tiers(call, demand, writer);
    else if (device->stay.bytes == 0)
        return;
    else
        gb_write_text(writer, "; there is no tier to spill to");
    gb_write_text(writer, ": delete objects, give gpubufd a (larger) --tier, or have them dropped "
                          "(evict=drop, --evict drop)");
}

static void write_holder(const struct gb_call *call, struct gb_writer *writer,
                         const struct gb_device *device)
{
    const struct gb_session *session = holds_most(call, device);
    bool all = call->server->session_count <= SESSIONS_COMPARED;

    if (session)
        gb_write_format(writer, "; session %" PRIu64 " (pid %d, uid %u%s%.64s) holds %s, %" PRIu64,
                        session->id, session->pid, session->user->uid, session->client ? ", " : "",
                        session->client ? session->client : "", all ? "most" : "much",
                        session->holder.bytes[device->index]);
}

int gb_call_no_space(struct gb_call *call, const struct gb_demand *demand, const char *more)
{
    const struct gb_device *device = demand->device;
    struct gb_writer writer;
    int r;

    gb_writer_init(&writer, 0);
    gb_write_format(&writer, "%s has no room for %" PRIu64 " bytes: ", device->id, demand->need);
    write_account(&writer, device);
    write_remedy(call, demand, &writer);
    write_holder(call, &writer, device);
    gb_write_text(&writer, more);
    r = writer.failed
            ? gb_call_no_memory(call)
            : gb_fail(&call->error, GPUBUF_E_NO_SPACE, "%.*s", (int)writer.length, writer.data);
    gb_writer_end(&writer);
    return r;
}
