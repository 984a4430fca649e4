#include "daemon/objects/orphan_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/base/failure.h"
#include "daemon/base/process.h"
#include "daemon/objects/stream.h"

/* Leases of a process that are ended at a time. */
#define SLICE 64
/* The most leases on objects that are looked at to tell which a returning process writes. */
#define LOOK_LIMIT 8192u
/* The most processes that could not be watched and are tried again at a time. */
#define WATCH_MOST 16u
#define WATCH_MS 20

/* ---- processes ---- */

static struct gb_writer_process *find_process(const struct gb_registry *registry,
                                              const struct gb_user *user, pid_t pid,
                                              uint64_t started)
{
    for (struct gb_hash_link *link = gb_hash_first(&registry->writers, gb_hash_id((uint64_t)pid));
         link; link = gb_hash_next(link)) {
        struct gb_writer_process *process = GB_CONTAINER(link, struct gb_writer_process, link);

        if (process->charge.user == user && process->pid == pid && process->started == started)
            return process;
    }
    return NULL;
}

/* NULL if memory is out. */
static struct gb_writer_process *new_process(struct gb_registry *registry, struct gb_user *user,
                                             pid_t pid, uint64_t started)
{
    struct gb_writer_process *process = calloc(1, sizeof(*process));

    if (process && !gb_hash_insert(&registry->writers, &process->link, gb_hash_id((uint64_t)pid))) {
        free(process);
        return NULL;
    }
    if (!process)
        return NULL;
    gb_list_append(&registry->writer_list, &process->of_all);
    process->registry = registry;
    process->pid = pid;
    process->started = started;
    process->fd = -1;
    process->charge.user = gb_user_ref(user);
    return process;
}

static void unref_process(struct gb_writer_process *process)
{
    struct gb_user *user = process->charge.user;

    if (--process->references > 0)
        return;
    gb_hash_remove(&process->registry->writers, &process->link);
    gb_list_remove(&process->of_all);
    gb_list_remove(&process->unwatched);
    if (process->fd >= 0)
        close(process->fd); /* which ends the wait for it */
    gb_charge_end(&process->charge);
    gb_user_unref(user);
    free(process);
}

/* Has the registry's `exits` report the end of the process: once for each call, and at once if it
   has ended. */
static int await(struct gb_writer_process *process, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = process};

    return epoll_ctl(process->registry->exits, operation, process->fd, &event);
}

/* Watches the process by a descriptor of it, which is taken over in any case. -1, with errno. */
static int watch(struct gb_writer_process *process, int fd)
{
    int r;

    process->fd = fd;
    r = await(process, EPOLL_CTL_ADD);
    if (r == 0) {
        gb_list_remove(&process->unwatched);
        gb_charge_set(&process->charge, GB_STOCK_OPEN, 1);
        return 0;
    }
    process->fd = -1;
    r = errno;
    close(fd);
    errno = r;
    return -1;
}

static void put_off_watching(struct gb_writer_process *process, uint64_t at)
{
    struct gb_registry *registry = process->registry;

    if (!gb_list_linked(&process->unwatched))
        gb_list_append(&registry->unwatched_writers, &process->unwatched);
    if (at < registry->watch_at)
        registry->watch_at = at;
}

/* ---- orphan writers ---- */

static struct gb_orphan_writer *orphan_of(struct gb_holder *holder)
{
    return GB_CONTAINER(holder, struct gb_orphan_writer, holder);
}

/* NULL if memory is out. */
static struct gb_orphan_writer *new_orphan(struct gb_writer_process *process, uint64_t session)
{
    struct gb_orphan_writer *orphan = calloc(1, sizeof(*orphan));

    if (!orphan ||
        !gb_hash_insert(&process->registry->orphan_writers, &orphan->link, gb_hash_id(session))) {
        free(orphan);
        return NULL;
    }
    process->references++;
    process->charge.user->writers++;
    orphan->process = process;
    orphan->holder.session = session;
    orphan->holder.orphan = true;
    orphan->holder.pid = process->pid;
    orphan->holder.started = process->started;
    orphan->holder.user = process->charge.user;
    return orphan;
}

/* That a process has, or had, in that session; NULL: none. */
static struct gb_orphan_writer *find_orphan(const struct gb_writer_process *process,
                                            uint64_t session)
{
    for (struct gb_hash_link *link =
             gb_hash_first(&process->registry->orphan_writers, gb_hash_id(session));
         link; link = gb_hash_next(link)) {
        struct gb_orphan_writer *orphan = GB_CONTAINER(link, struct gb_orphan_writer, link);

        if (orphan->process == process && orphan->holder.session == session)
            return orphan;
    }
    return NULL;
}

static void free_orphan(struct gb_orphan_writer *orphan)
{
    struct gb_writer_process *process = orphan->process;

    gb_hash_remove(&process->registry->orphan_writers, &orphan->link);
    gb_list_remove(&orphan->of_process);
    process->charge.user->writers--;
    unref_process(process);
    free(orphan->client);
    free(orphan);
}

static int fail_exited(pid_t pid, struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "the process that connected (pid %d) has exited: to write, connect again from "
                   "this one",
                   (int)pid);
}

/* When the process of that descriptor was started. */
static int read_start(int fd, pid_t pid, uint64_t *started, struct gb_error *error)
{
    int r = gb_process_started(pid, started);

    /* Asked afterwards: until it has exited nobody else has the pid. */
    if (gb_process_has_exited(fd))
        return fail_exited(pid, error);
    if (r == 0)
        return 0;
    if (errno != ENOENT)
        return gb_fail_call(error, "cannot read about the process that would write");
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "the daemon cannot see the process that would write (pid %d, of another pid "
                   "namespace, or /proc is not there), and could not tell when it has ended",
                   (int)pid);
}

/* Whether the user may have one more, with a descriptor if its process is new. */
static int may_write(const struct gb_user *user, bool is_new, struct gb_error *error)
{
    uint64_t most = user->quota->most[GB_QUOTA_SESSIONS];

    if (user->writers >= most)
        return gb_fail_limit(
            error, "user_sessions", (long long)most,
            "sessions of a user that write live memory, with those that have ended "
            "while their process has not");
    return is_new ? gb_user_may_charge(user, GB_STOCK_OPEN, 1, error) : 0;
}

int gb_orphan_writer_new(struct gb_registry *registry, int socket, struct gb_holder *holder,
                         struct gb_orphan_writer **out, struct gb_error *error)
{
    static const char unwatched[] = "cannot watch the process that would write";
    struct gb_writer_process *process;
    struct gb_orphan_writer *orphan;
    int fd = gb_process_of(socket, holder->pid), r;

    if (fd < 0)
        return errno == ESRCH ? fail_exited(holder->pid, error) : gb_fail_call(error, unwatched);
    r = read_start(fd, holder->pid, &holder->started, error);
    process = r == 0 ? find_process(registry, holder->user, holder->pid, holder->started) : NULL;
    if (r == 0)
        r = may_write(holder->user, !process, error);
    if (r == 0 && !process &&
        !(process = new_process(registry, holder->user, holder->pid, holder->started)))
        r = gb_fail_memory(error);
    if (r < 0) {
        close(fd);
        return r;
    }
    process->references++;
    orphan = new_orphan(process, holder->session);
    if (process->fd >= 0)
        close(fd);
    else if (watch(process, fd) < 0 && orphan)
        r = gb_fail_call(error, unwatched);
    if (!orphan)
        r = gb_fail_memory(error);
    else if (r < 0)
        free_orphan(orphan);
    else
        *out = orphan;
    unref_process(process);
    return r;
}

int gb_orphan_writer_check(const struct gb_orphan_writer *orphan, struct gb_error *error)
{
    const struct gb_writer_process *process = orphan->process;

    return process->fd >= 0 && gb_process_has_exited(process->fd) ? fail_exited(process->pid, error)
                                                                  : 0;
}

static void follow(struct gb_orphan_writer *orphan)
{
    struct gb_writer_process *process = orphan->process;

    gb_list_append(&process->orphans, &orphan->of_process);
    if (process->fd >= 0)
        await(process, EPOLL_CTL_MOD); /* it may have ended before, and have been told */
    else
        put_off_watching(process, process->registry->now_ms);
}

void gb_orphan_writer_follow(struct gb_orphan_writer *orphan, struct gb_holder *from, char *client)
{
    const struct gb_writer_process *process = orphan->process;

    orphan->client = client;
    orphan->holder.client = client;
    if (process->fd < 0 || !gb_process_has_exited(process->fd))
        GB_LIST_EACH(&from->leases, struct gb_lease, lease, of_holder) {
            if (gb_list_linked(&lease->of_writing) || lease->part)
                gb_lease_move(process->registry, lease, &orphan->holder);
        }
    if (orphan->holder.count == 0)
        free_orphan(orphan);
    else
        follow(orphan);
}

/* ---- after a daemon's end ---- */

/* The process that had the lease under an earlier daemon, with a reference. 0, and NULL: it has
   ended. GPUBUF_E_NO_MEMORY. */
static int restore_process(struct gb_registry *registry, const struct gb_live_lease *former,
                           uint64_t now_ms, struct gb_writer_process **out)
{
    struct gb_user *user = gb_user_get(&registry->store->users, former->uid);
    struct gb_writer_process *process =
        user ? find_process(registry, user, former->pid, former->started) : NULL;
    int fd, r = 0;

    *out = process;
    if (process) {
        process->references++;
    } else if (!user) {
        r = GPUBUF_E_NO_MEMORY;
    } else if ((fd = gb_process_find(former->pid, former->started)) >= 0 || errno != ESRCH) {
        *out = process = new_process(registry, user, former->pid, former->started);
        if (process)
            process->references++;
        else
            r = GPUBUF_E_NO_MEMORY;
        if (!process && fd >= 0)
            close(fd);
        else if (process && (fd < 0 || watch(process, fd) < 0))
            put_off_watching(process, now_ms);
    }
    gb_user_unref(user);
    return r;
}

int gb_orphan_writer_restore(struct gb_registry *registry, const struct gb_live_lease *former,
                             struct gb_object *object, uint64_t now_ms, struct gb_lease **out)
{
    struct gb_writer_process *process;
    struct gb_orphan_writer *orphan;
    struct gb_lease *lease = NULL;
    int r = restore_process(registry, former, now_ms, &process);

    if (!process)
        return r;
    orphan = find_orphan(process, former->session);
    if (!orphan && (orphan = new_orphan(process, former->session)))
        follow(orphan);
    if (former->session > registry->last_session)
        registry->last_session = former->session;
    if (orphan)
        lease = gb_lease_new(registry, object, &orphan->holder, former->write, now_ms);
    if (lease && former->exclusive)
        gb_lease_claim(lease, false);
    if (orphan && orphan->holder.count == 0)
        free_orphan(orphan);
    unref_process(process);
    *out = lease;
    return lease ? 0 : GPUBUF_E_NO_MEMORY;
}

/* Whether that is the returning process, which has its pid: 1 or 0; GPUBUF_E_SYSTEM: it cannot be
   told. */
static int is_same(const struct gb_writer_process *process)
{
    uint64_t started;

    if (process->fd >= 0)
        return !gb_process_has_exited(process->fd);
    if (gb_process_started(process->pid, &started) < 0)
        return GPUBUF_E_SYSTEM;
    return started == process->started;
}

/* The record of the returning process; with GPUBUF_E_SYSTEM, if it may be that. NULL and
   GPUBUF_E_NOT_FOUND. */
static int find_returning(const struct gb_registry *registry, const struct gb_returning *returning,
                          struct gb_writer_process **out)
{
    const struct gb_holder *holder = returning->holder;
    uint64_t hash = gb_hash_id((uint64_t)holder->pid);
    int r = 0;

    *out = NULL;
    for (struct gb_hash_link *link = gb_hash_first(&registry->writers, hash); link && r <= 0;
         link = gb_hash_next(link)) {
        struct gb_writer_process *process = GB_CONTAINER(link, struct gb_writer_process, link);

        if (process->pid == holder->pid && process->charge.user == holder->user &&
            (r = is_same(process)) != 0)
            *out = process;
    }
    return r > 0 ? 0 : *out ? GPUBUF_E_SYSTEM : GPUBUF_E_NOT_FOUND;
}

/* Whether it is for writing, or the part of that reader. */
static bool is_part(const struct gb_lease *lease, int reader)
{
    return reader < 0 ? lease->write : lease->part && lease->part->reader == reader;
}

int gb_orphan_writer_lease(const struct gb_registry *registry, const struct gb_returning *returning,
                           const struct gb_string *name, uint64_t version, int reader,
                           struct gb_lease **out)
{
    struct gb_lease *lease = NULL, *found = NULL;
    struct gb_writer_process *process;
    int r = find_returning(registry, returning, &process);

    while (process && (lease = gb_lease_next_orphan(registry, version, lease))) {
        const struct gb_object *object = lease->object;

        if (orphan_of(lease->holder)->process == process && is_part(lease, reader) &&
            object->name_length == name->length &&
            memcmp(object->name, name->text, name->length) == 0 &&
            (!found || lease->holder->session == returning->former))
            found = lease;
    }
    if (!found)
        return GPUBUF_E_NOT_FOUND;
    found->asked = true;
    *out = found;
    return r;
}

int gb_orphan_writer_resume(struct gb_lease *lease, const struct gb_returning *returning)
{
    struct gb_orphan_writer *orphan = orphan_of(lease->holder);
    struct gb_writer_process *process = orphan->process;

    if (!*returning->orphan)
        *returning->orphan = new_orphan(process, returning->holder->session);
    if (!*returning->orphan)
        return GPUBUF_E_NO_MEMORY;
    lease->asked = false;
    returning->holder->started = process->started;
    gb_lease_move(process->registry, lease, returning->holder);
    gb_storage_changed(lease->object->storage); /* the journal has the session's number */
    if (orphan->holder.count == 0)
        free_orphan(orphan);
    return 0;
}

/* Whether the holder writes the object; true if `left` more leases do not tell. */
static bool writes(const struct gb_holder *holder, const struct gb_object *object, unsigned *left)
{
    GB_LIST_EACH(&object->live->writing, const struct gb_lease, lease, of_writing) {
        if (*left == 0 || lease->holder == holder)
            return true;
        --*left;
    }
    return false;
}

void gb_orphan_writers_end_rest(struct gb_registry *registry, const struct gb_returning *returning)
{
    struct gb_writer_process *process;
    struct gb_orphan_writer *orphan;
    unsigned left = LOOK_LIMIT;

    if (find_returning(registry, returning, &process) < 0 ||
        !(orphan = find_orphan(process, returning->former)) || !gb_list_linked(&orphan->of_process))
        return;
    GB_LIST_EACH(&orphan->holder.leases, struct gb_lease, lease, of_holder) {
        if (!lease->asked && (!lease->write || !writes(returning->holder, lease->object, &left)))
            gb_lease_end(registry, lease);
    }
    if (orphan->holder.count == 0)
        free_orphan(orphan);
}

void gb_orphan_writer_end_lease(struct gb_lease *lease)
{
    struct gb_orphan_writer *orphan = orphan_of(lease->holder);

    gb_lease_end(orphan->process->registry, lease);
    if (orphan->holder.count == 0)
        free_orphan(orphan);
}

/* ---- processes that have exited ---- */

/* Ends some leases of a process that has exited. Returns whether there are more; if not, the
   process' record may be freed. */
static bool end_some(struct gb_writer_process *process)
{
    unsigned most = SLICE;
    bool more;

    process->references++;
    GB_LIST_EACH(&process->orphans, struct gb_orphan_writer, orphan, of_process) {
        most -= gb_holder_end_some(process->registry, &orphan->holder, true, most);
        if (orphan->holder.count > 0)
            break;
        free_orphan(orphan);
    }
    more = !gb_list_empty(&process->orphans);
    unref_process(process);
    return more;
}

void gb_orphan_writers_end_exited(struct gb_registry *registry)
{
    struct epoll_event events[16];
    int count = epoll_wait(registry->exits, events, 16, 0);

    for (int i = 0; i < count; i++)
        if (end_some(events[i].data.ptr))
            await(events[i].data.ptr, EPOLL_CTL_MOD);
}

void gb_orphan_writers_watch(struct gb_registry *registry, uint64_t now_ms)
{
    struct gb_link *list = &registry->unwatched_writers;
    const struct gb_link *last = gb_list_last(list);

    registry->watch_at = gb_list_empty(list) ? UINT64_MAX : now_ms + WATCH_MS;
    for (unsigned i = 0; i < WATCH_MOST && !gb_list_empty(list); i++) {
        struct gb_writer_process *process =
            GB_CONTAINER(list->next, struct gb_writer_process, unwatched);
        bool all = &process->unwatched == last;
        int fd = gb_process_find(process->pid, process->started);
        bool over = fd < 0 && errno == ESRCH;

        gb_list_remove(&process->unwatched);
        if (over ? end_some(process) : fd < 0 || watch(process, fd) < 0)
            put_off_watching(process, over ? now_ms : now_ms + WATCH_MS);
        if (all)
            return;
    }
}

void gb_orphan_writers_end(struct gb_registry *registry)
{
    GB_LIST_EACH(&registry->writer_list, struct gb_writer_process, process, of_all) {
        process->references++;
        while (!gb_list_empty(&process->orphans))
            end_some(process);
        unref_process(process);
    }
}
