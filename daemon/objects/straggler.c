#include "daemon/objects/straggler.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/base/process.h"

/* Leases of a straggler that are ended at a time. */
#define SLICE 64

static struct gb_straggler *straggler_of(struct gb_holder *holder)
{
    return GB_CONTAINER(holder, struct gb_straggler, holder);
}

static void free_straggler(struct gb_straggler *straggler)
{
    gb_list_remove(&straggler->link);
    close(straggler->fd); /* which ends the wait for it */
    gb_charge_end(&straggler->charge);
    gb_user_unref(straggler->holder.user);
    free(straggler->client);
    free(straggler);
}

/* Has the registry's `exits` tell of the end of the process: once for each call, and at once if it
   has ended. */
static int await(struct gb_straggler *straggler, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = straggler};

    return epoll_ctl(straggler->registry->exits, operation, straggler->fd, &event);
}

int gb_straggler_new(struct gb_registry *registry, int fd, pid_t pid, struct gb_user *user,
                     struct gb_straggler **out, struct gb_error *error)
{
    struct gb_straggler *straggler = calloc(1, sizeof(*straggler));
    uint64_t started = gb_process_started(pid);

    if (!straggler) {
        close(fd);
        return gb_fail_memory(error);
    }
    straggler->registry = registry;
    straggler->fd = fd;
    straggler->holder.pid = pid;
    straggler->holder.started = started;
    straggler->holder.user = straggler->charge.user = gb_user_ref(user);
    gb_charge_set(&straggler->charge, GB_STOCK_OPEN, 1);
    if (started && await(straggler, EPOLL_CTL_ADD) == 0) {
        *out = straggler;
        return 0;
    }
    if (started)
        gb_fail_errno(error, "cannot watch the process %d", (int)pid);
    else
        gb_fail(error, GPUBUF_E_UNSUPPORTED,
                "the daemon cannot see the process that would write (pid %d, of another pid "
                "namespace, or /proc is not there), and could not tell when it has ended",
                (int)pid);
    free_straggler(straggler);
    return error ? error->code : GPUBUF_E_SYSTEM;
}

static void follow(struct gb_straggler *straggler)
{
    straggler->holder.straggles = true;
    gb_list_append(&straggler->registry->stragglers, &straggler->link);
}

void gb_straggler_follow(struct gb_straggler *straggler, struct gb_holder *from, char *client)
{
    straggler->client = client;
    straggler->holder.client = client;
    straggler->holder.session = from->session;
    if (!gb_process_is_over(straggler->fd))
        GB_LIST_EACH(&from->leases, struct gb_lease, lease, of_holder) {
            if (gb_list_linked(&lease->of_writing))
                gb_lease_move(straggler->registry, lease, &straggler->holder);
        }
    if (straggler->holder.count == 0) {
        free_straggler(straggler);
        return;
    }
    follow(straggler);
    await(straggler, EPOLL_CTL_MOD); /* it may have ended before, and have been told */
}

int gb_straggler_restore(struct gb_registry *registry, const struct gb_live_writer *writer,
                         struct gb_object *object, uint64_t now_ms)
{
    struct gb_user *user = gb_user_get(&registry->store->users, writer->uid);
    struct gb_straggler *straggler = NULL;
    struct gb_error error = {.code = GPUBUF_E_NO_MEMORY};
    struct gb_lease *lease = NULL;
    int fd = user ? gb_process_find(writer->pid, writer->started) : -1, r = 0;

    if (!user ||
        (fd >= 0 && gb_straggler_new(registry, fd, writer->pid, user, &straggler, &error) < 0))
        r = error.code;
    gb_user_unref(user);
    if (!straggler) /* it has ended */
        return r;
    straggler->holder.session = writer->session;
    lease = gb_lease_new(registry, object, &straggler->holder, true, now_ms);
    if (!lease) {
        free_straggler(straggler);
        return GPUBUF_E_NO_MEMORY;
    }
    if (writer->exclusive)
        gb_lease_claim(lease, false);
    follow(straggler);
    await(straggler, EPOLL_CTL_MOD);
    return 0;
}

struct gb_lease *gb_straggler_lease(const struct gb_object *object, const struct gb_user *user,
                                    pid_t pid)
{
    GB_LIST_EACH(&object->live.writing, struct gb_lease, lease, of_writing) {
        const struct gb_holder *holder = lease->holder;

        if (holder->straggles && holder->user == user && holder->pid == pid)
            return lease;
    }
    return NULL;
}

void gb_straggler_give(struct gb_lease *lease, struct gb_holder *to)
{
    struct gb_straggler *straggler = straggler_of(lease->holder);

    gb_lease_move(straggler->registry, lease, to);
    if (straggler->holder.count == 0)
        free_straggler(straggler);
}

void gb_straggler_end_rest(struct gb_registry *registry, const struct gb_user *user, pid_t pid,
                           uint64_t session)
{
    GB_LIST_EACH(&registry->stragglers, struct gb_straggler, straggler, link) {
        const struct gb_holder *holder = &straggler->holder;

        if (holder->user != user || holder->pid != pid || holder->session != session)
            continue;
        gb_holder_end(registry, &straggler->holder);
        free_straggler(straggler);
    }
}

void gb_stragglers_end_over(struct gb_registry *registry)
{
    struct epoll_event events[16];
    int count = epoll_wait(registry->exits, events, 16, 0);

    for (int i = 0; i < count; i++) {
        struct gb_straggler *straggler = events[i].data.ptr;

        if (!straggler->holder.straggles)
            continue; /* somebody else has its connection now, and ends it */
        gb_holder_end_some(registry, &straggler->holder, true, SLICE);
        if (straggler->holder.count == 0)
            free_straggler(straggler);
        else
            await(straggler, EPOLL_CTL_MOD);
    }
}

void gb_stragglers_end(struct gb_registry *registry)
{
    GB_LIST_EACH(&registry->stragglers, struct gb_straggler, straggler, link) {
        gb_holder_end(registry, &straggler->holder);
        free_straggler(straggler);
    }
}
