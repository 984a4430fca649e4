/* Live objects, for create, open and hello: what they cannot have, and leases for writing them. */
#include "daemon/methods/live.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/base/clock.h"
#include "daemon/methods/space.h"
#include "daemon/objects/orphan_writer.h"
#include "daemon/serve/departure.h"

int gb_live_check(struct gb_call *call, const struct gb_create_params *params)
{
    const struct {
        const char *param;
        bool said;
        const char *why;
    } refused[] = {
        {"final", params->final, "its content changes"},
        {"label", params->label.text && params->label.length > 0, "a label names one content"},
        {"keep", params->keep > 0, "its content changes in place, and has no older versions"},
        {"scope", params->scope.text && strcmp(params->scope.text, "local") != 0,
         "other machines could only copy it"},
    };

    for (size_t i = 0; params->live && i < sizeof(refused) / sizeof(refused[0]); i++)
        if (refused[i].said)
            return gb_fail_at(&call->error, GB_PARAM(refused[i].param), "goes without live: %s",
                              refused[i].why);
    return 0;
}

int gb_live_know_process(struct gb_call *call)
{
    struct gb_session *session = call->session;

    if (session->orphan)
        return gb_orphan_writer_check(session->orphan, &call->error);
    return gb_orphan_writer_new(&call->server->registry, session->conn.fd, &session->holder,
                                &session->orphan, &call->error);
}

int gb_live_may_write(struct gb_call *call, const struct gb_object *object)
{
    const struct gb_limits *limits = call->server->limits;

    if (call->session->holder.writes >= limits->session_unsealed)
        return gb_fail_limit(&call->error, "session_unsealed", (long long)limits->session_unsealed,
                             "unsealed objects of a session, and live ones that it writes");
    if (object && object->live->writers >= GB_LIMIT(live_writers))
        return gb_fail_limit(&call->error, "live_writers", GB_LIMIT(live_writers),
                             "leases for writing one live object");
    return gb_live_know_process(call);
}

/* Says who writes the object, or waits to (`before`), so that the request must wait or fail. */
static int describe_writer(struct gb_call *call, const struct gb_object *object,
                           const struct gb_wait *before, uint64_t wait_ms)
{
    const struct gb_lease *lease =
        before ? NULL : GB_CONTAINER(object->live->writing.next, const struct gb_lease, of_writing);
    const struct gb_holder *holder = before ? &before->session->holder : lease->holder;
    bool claims = before ? before->claims : lease->exclusive;
    const struct gb_string name = {object->name, object->name_length};
    char after[48] = "";

    if (wait_ms > 0)
        snprintf(after, sizeof(after), " after %" PRIu64 " ms", wait_ms);
    return gb_call_fail_name(
        call, wait_ms > 0 ? GPUBUF_E_TIMEOUT : GPUBUF_E_BUSY, &name,
        "\"%s\" is %s%s%s by session %" PRIu64 " (%.64s, pid %d)%s", object->name,
        before ? "to be " : "", claims ? "claimed" : "written", after, holder->session,
        holder->client ? holder->client : "no name", (int)holder->pid,
        holder->orphan ? ", whose connection has ended; its process has not, and may still "
                         "write until that does"
                       : "");
}

int gb_live_open(struct gb_call *call, struct gb_object *object, bool exclusive, uint64_t wait_ms,
                 struct gb_lease **lease)
{
    struct gb_registry *registry = &call->server->registry;
    const struct gb_string name = {object->name, object->name_length};
    const struct gb_wait *before;
    bool blocked;
    int r;

    if (!gb_object_is_live(object))
        return gb_call_fail_name(call, GPUBUF_E_UNSUPPORTED, &name,
                                 "\"%s\" is not live, and its content never changes: publish "
                                 "another version (edit does)",
                                 object->name);
    r = gb_live_may_write(call, object);
    if (r < 0)
        return r;
    /* Sessions that have ended do not write. */
    gb_sessions_release_leases(call->server, UINT64_MAX);
    gb_orphan_writers_end_exited(registry);
    blocked = exclusive ? object->live->writers > 0 : object->live->claimed;
    before = gb_wait_to_write_before(call->server, object->storage, call->wait, exclusive);
    if ((blocked || before) && wait_ms > 0 && !call->last_try)
        return gb_call_wait_writer(call, object, exclusive, wait_ms);
    if (blocked || before)
        return describe_writer(call, object, blocked ? NULL : before, wait_ms);
    *lease = gb_lease_new(registry, object, &call->session->holder, true, gb_now_ms());
    if (!*lease)
        return gb_call_no_memory(call);
    return 0;
}

static struct gb_returning returning(struct gb_session *session, uint64_t former)
{
    return (struct gb_returning){&session->holder, &session->orphan, former};
}

struct gb_lease *gb_live_resume(struct gb_call *call, const struct gb_string *name,
                                uint64_t version, int reader, uint64_t former)
{
    struct gb_session *session = call->session;
    const struct gb_returning self = returning(session, former);
    struct gb_store *store = &call->server->store;
    struct gb_lease *lease = NULL;
    int r = gb_orphan_writer_lease(&call->server->registry, &self, name, version, reader, &lease);

    for (unsigned i = 0; r == 0 && i < lease->object->storage->placement_count; i++)
        r = gb_mapper_add(store, &session->mapper, lease->object->storage->placements[i].segment,
                          lease->write ? GB_ACCESS_WRITE : GB_ACCESS_READ);
    if (r == 0)
        r = gb_orphan_writer_resume(lease, &self);
    if (r < 0)
        return NULL;
    return lease;
}

void gb_live_end_rest(struct gb_call *call, uint64_t former)
{
    const struct gb_returning self = returning(call->session, former);

    gb_orphan_writers_end_rest(&call->server->registry, &self);
}
