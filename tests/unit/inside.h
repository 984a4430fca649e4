/*
 * A whole server inside the test's own process: no daemon is started, and a test may look at
 * everything. Peers are the other ends of socket pairs. A turn of the loop is one call, so what
 * happens between two turns is the test's choice; and inside_check() compares every account of the
 * server with what is really there.
 *
 * Define DEMAND(condition) before including this: it is called for each condition that must hold.
 */
#ifndef GB_TEST_INSIDE_H
#define GB_TEST_INSIDE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/methods/call.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/task.h"
#include "daemon/objects/lease.h"
#include "daemon/objects/orphan_writer.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/wiring.h"
#include "daemon/store/store.h"
#include "descriptors.h"

struct inside {
    uv_loop_t loop;
    struct gb_config config;
    struct gb_server server;
    char directory[32], socket[48];
    void (*work)(void); /* what happens before each turn; NULL: nothing */
    bool overfull;      /* it was started with more memory than its device may have */
    bool threaded;      /* long requests are worked on by a thread, not in the turn itself */
};

/* The other end of a session. */
struct peer {
    int fd;        /* -1: none */
    uint64_t id;   /* of the session */
    char *in;      /* received and not taken; NUL-terminated */
    size_t length; /* of it */
    unsigned fds;  /* descriptors received so far; all of them are closed at once */
    bool closed;   /* the server hung up */
};

/* `options`: up to 16, NULL-terminated, as on the command line. To be followed by inside_listen();
   until then the devices may be changed. */
static inline void inside_make(struct inside *inside, const char *const *options)
{
    char *argv[20] = {(char *)"gpubufd", (char *)"--socket", inside->socket};
    int argc = 3;
    struct gb_error error;

    memset(inside, 0, sizeof(*inside));
    strcpy(inside->directory, "/tmp/gpubufd-XXXXXX");
    DEMAND(mkdtemp(inside->directory) != NULL);
    snprintf(inside->socket, sizeof(inside->socket), "%s/s", inside->directory);
    for (; *options; options++) {
        DEMAND(argc < 19);
        argv[argc++] = (char *)*options;
    }
    gb_log_setup(GB_LOG_ERROR, false);
    DEMAND(gb_config_read(&inside->config, argv, &error) == 0);
    DEMAND(gb_server_init(&inside->server, &inside->config, &gb_methods, &error) == 0);
    inside->server.turns.slice_ns = INT64_MAX / 4; /* one turn serves all that has come */
    inside->server.turns.drain_ns = INT64_MAX / 4;
}

static inline void inside_listen(struct inside *inside)
{
    struct gb_error error;

    DEMAND(uv_loop_init(&inside->loop) == 0);
    DEMAND(gb_server_listen(&inside->server, &inside->loop, &error) == 0);
    if (inside->threaded)
        return;
    gb_mover_end(inside->server.worker);
    inside->server.worker = NULL;
}

static inline void inside_begin(struct inside *inside, const char *const *options)
{
    inside_make(inside, options);
    inside_listen(inside);
}

/* One turn: what is there is received and served, and requests that take several turns are served
   to their end. */
static inline void inside_turn(struct inside *inside)
{
    if (inside->work)
        inside->work();
    do
        uv_run(&inside->loop, UV_RUN_NOWAIT);
    while (!inside->threaded && !gb_list_empty(&inside->server.turns.tasks));
}

/* Ends the server; gb_server_init() and inside_listen() start another one. */
static inline void inside_stop(struct inside *inside)
{
    while (!gb_list_empty(&inside->server.sessions))
        gb_session_end(GB_CONTAINER(inside->server.sessions.next, struct gb_session, of_server),
                       "test");
    gb_server_end(&inside->server);
    DEMAND(uv_loop_close(&inside->loop) == 0);
}

static inline void inside_end(struct inside *inside)
{
    inside_stop(inside);
    gb_config_end(&inside->config);
    DEMAND(rmdir(inside->directory) == 0);
}

/* ---- peers ---- */

/* Connects a peer. False if the server did not accept it. */
static inline bool peer_connect(struct inside *inside, struct peer *peer)
{
    int ends[2];

    memset(peer, 0, sizeof(*peer));
    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    peer->fd = ends[0];
    peer->id = inside->server.next_session;
    if (gb_session_new(&inside->server, ends[1]) == 0)
        return true;
    close(peer->fd);
    peer->fd = -1;
    return false;
}

static inline void peer_close(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    free(peer->in);
    *peer = (struct peer){.fd = -1};
}

/* A peer's session; NULL if it has ended. */
static inline struct gb_session *peer_session(const struct inside *inside, const struct peer *peer)
{
    GB_LIST_EACH(&inside->server.sessions, struct gb_session, session, of_server) {
        if (session->id == peer->id)
            return session;
    }
    return NULL;
}

/* Makes a peer's session belong to another user. */
static inline void peer_become(struct inside *inside, const struct peer *peer, uid_t uid)
{
    struct gb_session *session = peer_session(inside, peer);
    struct gb_user *user = gb_user_get(&inside->server.store.users, uid);

    DEMAND(session && user);
    session->user->has[GB_QUOTA_SESSIONS]--;
    gb_charge_end(&session->charge);
    gb_user_unref(session->user);
    session->user = session->charge.user = session->flight.charge.user = user;
    gb_user_unref(session->holder.user);
    session->holder.user = gb_user_ref(user);
    session->provider.user = user;
    session->provider.gid = uid;
    user->has[GB_QUOTA_SESSIONS]++;
    gb_charge_set(&session->charge, GB_STOCK_OPEN, 1);
    session->gid = uid;
    session->group_count = 0;
}

/* Sends as much as the socket takes, with descriptors on the first byte; returns how much. */
static inline size_t peer_send_bytes(struct peer *peer, const void *data, size_t length,
                                     const int *fds, unsigned count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(GB_LIMIT(fds) * sizeof(int))];
    } control = {0};
    struct iovec vector = {(void *)data, length};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t sent;

    if (count > 0) {
        struct cmsghdr *rights = &control.align;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    sent = sendmsg(peer->fd, &header, MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

static inline void peer_send(struct peer *peer, const char *line)
{
    DEMAND(peer_send_bytes(peer, line, strlen(line), NULL, 0) == strlen(line));
}

static inline void peer_drop_fds(struct peer *peer, struct msghdr *header)
{
    DEMAND(!(header->msg_flags & MSG_CTRUNC));
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            close(fd);
            peer->fds++;
        }
    }
}

/* Receives all that has come; returns how many bytes. */
static inline size_t peer_receive(struct peer *peer)
{
    static char buffer[65536];
    size_t total = 0;

    for (;;) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(253 * sizeof(int))];
        } control;
        struct iovec vector = {buffer, sizeof(buffer)};
        struct msghdr header = {.msg_iov = &vector,
                                .msg_iovlen = 1,
                                .msg_control = control.bytes,
                                .msg_controllen = sizeof(control.bytes)};
        ssize_t n = recvmsg(peer->fd, &header, MSG_CMSG_CLOEXEC);

        if (n < 0 && errno == EINTR)
            continue;
        peer->closed |= n == 0 || (n < 0 && errno != EAGAIN);
        if (n <= 0)
            return total;
        peer_drop_fds(peer, &header);
        peer->in = realloc(peer->in, peer->length + (size_t)n + 1);
        DEMAND(peer->in != NULL);
        memcpy(peer->in + peer->length, buffer, (size_t)n);
        peer->length += (size_t)n;
        peer->in[peer->length] = '\0';
        total += (size_t)n;
    }
}

/* The next line that has come, malloc'ed and without its newline; NULL if there is none. */
static inline char *peer_line(struct peer *peer)
{
    char *newline, *line;
    size_t length;

    if (peer->fd >= 0)
        peer_receive(peer);
    newline = peer->length > 0 ? memchr(peer->in, '\n', peer->length) : NULL;
    if (!newline)
        return NULL;
    length = (size_t)(newline - peer->in);
    line = malloc(length + 1);
    DEMAND(line != NULL);
    memcpy(line, peer->in, length);
    line[length] = '\0';
    peer->length -= length + 1;
    memmove(peer->in, newline + 1, peer->length + 1);
    return line;
}

/* A memfd of `bytes` with the seals. */
static inline int sealed_memfd(size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    DEMAND(fd >= 0 && fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)bytes) == 0);
    DEMAND(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* ---- the accounts ---- */

/* A set of any number of pointers. */
struct inside_set {
    const void **items;
    size_t count, capacity;
};

static inline bool inside_add(struct inside_set *set, const void *item)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i] == item)
            return false;
    if (set->count == set->capacity) {
        set->capacity = set->capacity ? set->capacity * 2 : 64;
        set->items = realloc(set->items, set->capacity * sizeof(*set->items));
        DEMAND(set->items != NULL);
    }
    set->items[set->count++] = item;
    return true;
}

/* The sums over all objects and sessions. */
struct inside_count {
    const struct gb_server *server;
    struct inside_set objects, storages, segments;
    uint64_t used, leased, pinned, pinned_leased, evictable, stays, clean, passed, allocated,
        retired;
    uint64_t leases, mappings, waits, timers, charged;
    uint64_t spilled, spilled_bytes, leaving, tier_used[GB_TIERS], tier_evictable[GB_TIERS];
};

static inline void count_segment(struct inside_count *count, const struct gb_segment *segment)
{
    if (!inside_add(&count->segments, segment))
        return;
    count->allocated += segment->charged;
    if (segment->retiring) {
        DEMAND(segment->empty && !gb_list_empty(&segment->mappings));
        count->retired += segment->charged;
    }
    DEMAND(segment->empty == (gb_list_linked(&segment->empties) || segment->retiring));
}

/* Counts a storage's copies in the tiers; returns how many. */
static inline unsigned count_copies(struct inside_count *count, const struct gb_storage *storage)
{
    unsigned copies = 0;

    for (int i = 0; i < GB_TIERS; i++)
        copies += storage->copies[i] != NULL;
    for (int i = 0; i < GB_TIERS; i++) {
        const struct gb_copy *copy = storage->copies[i];

        if (!copy)
            continue;
        DEMAND(copy->storage == storage && copy->tier == &count->server->spill.tiers[i]);
        DEMAND(copy->whole && copy->bytes == storage->size && copy->bytes <= copy->occupied);
        DEMAND(copy->recent.clean == (copies + storage->resident > 1 || storage->needs == 0));
        DEMAND(copy->recent.holds <= (uint64_t)(storage->in != NULL) + (storage->out != NULL));
        count->tier_used[i] += copy->occupied;
        count->tier_evictable[i] += copy->recent.holds ? 0 : copy->occupied;
    }
    return copies;
}

/* How many users' accounts a storage counts in: of those who have a name for it, else of those who
   hold it, else of its maker. */
static inline unsigned count_payers(const struct gb_storage *storage)
{
    unsigned named = 0, holding = 0;

    GB_LIST_EACH(&storage->stakes, const struct gb_stake, stake, of_storage) {
        named += stake->names > 0;
        holding += stake->leases > 0;
    }
    return named ? named : holding ? holding : 1;
}

/* Counts a storage, and checks that its state fits where its content is. */
static inline void count_storage(struct inside_count *count, const struct gb_storage *storage,
                                 uint64_t leases, uint64_t pins, bool named)
{
    unsigned copies = count_copies(count, storage);
    bool grace = leases > 0 && count->server->registry.grace_count > 0;

    DEMAND(storage->resident || !storage->recent.in);
    /* Content that was lost has no name; sessions that may still resume are told that it is
       gone. */
    DEMAND(storage->resident || copies > 0 || (grace && !named));
    DEMAND(storage->resident || leases == 0 || grace);
    DEMAND(!storage->resident || !named || !storage->bytes || storage->recent.in);
    DEMAND(storage->resident || storage->in || storage->placement_count == 0);
    count->used += storage->bytes;
    count->charged += storage->charged * count_payers(storage);
    count->leased += leases ? storage->bytes : 0;
    count->pinned += pins ? storage->bytes : 0;
    count->pinned_leased += pins && leases ? storage->bytes : 0;
    count->passed += storage->tally ? storage->bytes : 0;
    if (storage->recent.in && storage->recent.holds == 0) {
        DEMAND(storage->recent.bytes == storage->bytes);
        DEMAND(storage->recent.needed == (storage->needs > 0));
        *(storage->recent.in == &storage->key.device->stay ? &count->stays : &count->evictable) +=
            storage->bytes;
        if (storage->recent.in != &storage->key.device->stay)
            count->clean += storage->recent.clean ? storage->bytes : 0;
    }
    if (!storage->resident && storage->placement_count == 0) {
        count->spilled++;
        count->spilled_bytes += storage->size;
    }
    if (storage->out && !storage->out->from)
        count->leaving += storage->out->bytes;
    for (unsigned i = 0; i < storage->placement_count; i++)
        count_segment(count, storage->placements[i].segment);
}

static inline void count_object(struct inside_count *count, const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;
    uint64_t objects = 0, leases = 0, idle = 0, idles = 0, pins = 0, holds = 0, needs = 0, workers;
    bool named = false;

    if (!inside_add(&count->objects, object) || !inside_add(&count->storages, storage))
        return;
    GB_LIST_EACH(&storage->objects, const struct gb_object, of, of_storage) {
        objects++;
        leases += of->lease_count - of->idle_count;
        idle += of->idle_count;
        pins += (uint64_t)of->pinned + (of->named && of->evict == GB_EVICT_KEEP);
        holds += of->unsettled;
        named |= of->named;
        needs += of->named && of->evict != GB_EVICT_DROP;
        DEMAND(of->named || of->lease_count > 0 ||
               !gb_list_empty(&count->server->registry.orphans));
    }
    holds += leases + pins;
    /* Moves have references, waits have references and holds. */
    workers = (uint64_t)(storage->out != NULL) + (storage->in != NULL);
    GB_LIST_EACH(&storage->idles, struct gb_lease, lease, of_idle)
        idles++;
    DEMAND(idles == idle && (storage->resident || idle == 0));
    DEMAND(storage->leases == leases && storage->pins == pins && storage->needs == needs);
    DEMAND(storage->references >= objects + workers && storage->recent.holds >= holds);
    DEMAND(storage->references - objects - workers == storage->recent.holds - holds);
    count_storage(count, storage, leases, pins, named);
}

/* Checks that a holder's page marks just those leases as current that are. */
static inline void check_page(const struct gb_holder *holder)
{
    unsigned taken = 0, said = 0;

    if (!holder->page)
        return;
    GB_LIST_EACH(&holder->leases, const struct gb_lease, lease, of_holder) {
        uint64_t slot = lease->slot ? holder->page->slots[lease->slot - 1] : 0;

        DEMAND(slot == 0 || (slot == lease->id && lease->object->current));
        taken += lease->slot > 0;
        said += slot > 0;
    }
    for (unsigned i = 0; i < GB_PAGE_SLOTS; i++) {
        taken -= (unsigned)(holder->page->taken[i / 64] >> i % 64 & 1);
        said -= holder->page->slots[i] > 0;
    }
    DEMAND(taken == 0 && said == 0);
}

/* Counts a session's leases; returns how many of them are for writing. */
static inline uint64_t count_leases(struct inside_count *count, const struct gb_holder *holder)
{
    uint64_t leases = 0, idle = 0, unsealed = 0;

    GB_LIST_EACH(&holder->leases, const struct gb_lease, lease, of_holder) {
        leases++;
        idle += lease->idle_ms > 0;
        DEMAND(lease->slot || !lease->idle_ms);
        DEMAND(!lease->slot || holder->page);
        unsealed += lease->write;
        DEMAND(lease->write == (lease->unsealed || gb_list_linked(&lease->of_writing)));
        count_object(count, lease->object);
    }
    DEMAND(leases == holder->count && idle == holder->idle);
    check_page(holder);
    count->leases += leases;
    return unsealed;
}

/* Counts what a session that ended left for a while, in case it resumes. Returns as count_leases()
   does. */
static inline uint64_t count_left(struct inside_count *count, const struct gb_session *session)
{
    GB_LIST_EACH(&session->mapper.mappings, struct gb_mapping, mapping, of_mapper) {
        count->mappings++;
        count_segment(count, mapping->segment);
    }
    return count_leases(count, &session->holder);
}

/* Returns how many names of the share its provider was asked for. */
static inline uint64_t check_share(const struct gb_user_share *share,
                                   const struct gb_provider *provider)
{
    uint64_t queued = 0;

    DEMAND(share->provider == provider && share->count > 0);
    GB_LIST_EACH(&share->queued, const struct gb_missing, missing, turn) {
        DEMAND(!missing->provider && missing->share == share);
        queued++;
    }
    DEMAND(queued + share->asked == share->count);
    DEMAND(share->asked <= provider->all->limits->user_wanted);
    DEMAND(gb_list_linked(&share->turn) || queued == 0 ||
           share->asked == provider->all->limits->user_wanted);
    return share->asked;
}

/* Checks that a session's lists have just the names that it was asked for. */
static inline void check_provider(const struct gb_session *session)
{
    const struct gb_provider *provider = &session->provider;
    uint64_t asked = 0, prefixes = 0, given_up = 0;

    GB_LIST_EACH(&provider->asked, const struct gb_missing, missing, turn) {
        DEMAND(missing->provider == provider && !missing->declined && missing->count > 0);
        DEMAND(gb_missing_find(&session->server->missings, missing->name, missing->name_length) ==
               missing);
        asked++;
        given_up += missing->share->provider == NULL;
    }
    DEMAND(asked == provider->asked_count);
    GB_LIST_EACH(&provider->shares, const struct gb_user_share, share, of_provider)
        asked -= check_share(share, provider);
    DEMAND(asked == given_up); /* each asked name is of one share */
    GB_LIST_EACH(&provider->prefixes, struct gb_prefix, prefix, of_provider) {
        DEMAND(prefix->provider == provider);
        prefixes++;
    }
    DEMAND(prefixes == provider->prefix_count);
    DEMAND(provider->asked_count <= session->server->limits->session_wanted);
}

static inline void count_session(struct inside_count *count, const struct gb_session *session)
{
    uint64_t unsealed = count_left(count, session), watches = 0, waits = 0;
    int wanted =
        (session->input == GB_INPUT_WANTED ? UV_READABLE : 0) |
        (gb_conn_has_output(&session->conn) || session->input == GB_INPUT_THROTTLED ||
                 session->watching.unsynced || gb_session_stalls(session) ||
                 (session->state == GB_SESSION_OPEN && gb_provider_lags(&session->provider))
             ? UV_WRITABLE
             : 0);

    for (const struct gb_link *link = session->watching.watches.next;
         link && link != &session->watching.watches; link = link->next)
        watches++;
    GB_LIST_EACH(&session->waits, struct gb_wait, wait, of_session)
        waits++;
    DEMAND((session->input == GB_INPUT_HELD) == (session->task != NULL));
    GB_LIST_EACH(&session->tasks, const struct gb_task, task, of_session) {
        if (task->storage && inside_add(&count->storages, task->storage))
            count_storage(count, task->storage, 0, 0, false);
    }
    DEMAND(unsealed == session->holder.writes);
    DEMAND(watches == session->watching.count && waits == session->wait_count);
    count->waits += waits;
    check_provider(session);
    count->timers += waits + (session->half_line.deadline.place != 0);
    DEMAND(session->charge.amounts[GB_HELD_BYTES] == session->conn.in.partial_length -
                                                         session->conn.in.partial_start +
                                                         gb_conn_output_bytes(&session->conn));
    DEMAND(session->charge.amounts[GB_HELD_FDS] == session->conn.in.fd_count);
    DEMAND(session->charge.amounts[GB_STOCK_OPEN] == 1 + session->conn.out_fd_count);
    DEMAND((session->flight.charge.amounts[GB_STOCK_FLIGHT] > 0) ==
           gb_list_linked(&session->flight.of_all));
    /* The session waits for every event that it needs to go on. One whose peer cannot be sent
       anything any more waits for its end only. */
    DEMAND(session->poll_events == wanted || (session->stopped_reading && session->poll_events) ||
           (gb_list_linked(&session->ready) && !session->poll_events) ||
           gb_list_linked(&session->dirty));
    DEMAND(gb_list_linked(&session->dirty) || !session->end_reason);
}

/* Checks that the users' accounts add up to what was counted. */
/* A user lists the versions without a name that it holds, and is listed itself while they take it
   past its quota. */
static inline void check_nameless(const struct gb_user *user, const struct gb_device *device)
{
    bool past = gb_user_excess(user, device) > 0;
    uint64_t bytes = 0;

    GB_LIST_EACH(&user->nameless_stakes[0], const struct gb_stake, stake, of_user) {
        DEMAND(stake->user == user && stake->leases > 0 && stake->storage->named == 0);
        bytes += stake->storage->charged;
    }
    DEMAND(user->nameless[0] >= bytes); /* more: what its maker has that nobody holds open */
    DEMAND(user->past == past && gb_list_linked(&user->of_past) == past);
    DEMAND(past || user->asked_back_ms[0] == 0);
}

static inline void check_users(const struct inside_count *count, uint64_t sessions, bool all)
{
    const struct gb_device *device = count->server->devices[0];
    uint64_t of_sessions = 0, objects = 0, segments = 0, bytes = 0, waits = 0,
             stocks[GB_STOCKS] = {0};

    GB_LIST_EACH(&count->server->store.users.all, const struct gb_user, user, of_users) {
        check_nameless(user, device);
        of_sessions += user->has[GB_QUOTA_SESSIONS];
        objects += user->has[GB_QUOTA_OBJECTS];
        segments += user->has[GB_QUOTA_SEGMENTS];
        waits += user->charges[GB_HELD_WAITS];
        bytes += user->bytes[0];
        for (int i = 0; i < GB_STOCKS; i++)
            stocks[i] += user->charges[i];
    }
    for (int i = 0; i < GB_STOCKS; i++)
        DEMAND(stocks[i] == count->server->store.users.stocks[i].used);
    DEMAND(stocks[GB_STOCK_OPEN] >= sessions + stocks[GB_STOCK_KEPT]);
    DEMAND(of_sessions == sessions && objects == count->objects.count);
    DEMAND(segments == device->segments && waits == count->waits);
    DEMAND(all ? bytes == count->charged : bytes >= count->charged);
}

/* Checks a device's account. `all`: the walk has found everything; else there may be more, which a
   worker still uses though no object has it. */
static inline void check_device(const struct inside_count *count, const struct gb_device *device,
                                bool all, bool overfull)
{
    uint64_t capacity =
        overfull && device->allocated > device->capacity ? device->allocated : device->capacity;
    const struct gb_spill *spill = &count->server->spill;
    const struct gb_queue *queue = &count->server->waits.queues[device->index];
#define FOUND(counted, noted) DEMAND(all ? (counted) == (noted) : (counted) <= (noted))

    DEMAND(count->objects.count == device->objects);
    DEMAND(count->leased == device->leased && count->retired == device->pinned_by_clients);
    FOUND(count->allocated + device->moving, device->allocated);
    FOUND(count->used, device->used);
    FOUND(count->pinned, device->pinned);
    FOUND(count->pinned_leased, device->pinned_leased);
    FOUND(count->evictable, device->recency.bytes);
    FOUND(count->stays, device->stay.bytes);
    FOUND(count->clean, device->recency.clean_bytes);
    FOUND(count->passed, queue->overtaken);
    FOUND(count->spilled, device->spilled);
    FOUND(count->spilled_bytes, device->spilled_bytes);
    FOUND(count->leaving, device->leaving);
    for (int i = 0; i < GB_TIERS; i++) {
        const struct gb_tier *tier = &spill->tiers[i];

        FOUND(count->tier_used[i] + tier->going, tier->used);
        FOUND(count->tier_evictable[i], tier->recency.bytes);
        DEMAND(tier->used <= tier->capacity);
    }
    DEMAND(device->allocated <= capacity);
    DEMAND(device->used + device->pinned_by_clients + device->moving <= device->allocated);
    DEMAND(gb_device_free_bytes(device) + device->used + gb_device_retained(device) +
               device->pinned_by_clients ==
           capacity);
    DEMAND((queue->seen == device->changes && queue->tried == 0) || gb_list_empty(&queue->waits));
#undef FOUND
}

/* Checks every account after a turn, for a server with one device, and that nothing was left undone
   that could be done. */
static inline void inside_check(const struct inside *inside)
{
    const struct gb_server *server = &inside->server;
    const struct gb_store *store = &server->store;
    const struct gb_device *device = server->devices[0];
    struct inside_count count = {.server = server};
    uint64_t sessions = 0;
    bool all;

    for (const struct gb_name *name = gb_names_lower(&server->registry.names, "", 0, false); name;
         name = gb_names_next(name)) {
        const struct gb_object *object = GB_CONTAINER(name, struct gb_object, index);

        DEMAND(object->named && object->current && object->version > 0);
        for (; object && object->named; object = gb_object_older(object))
            count_object(&count, object);
    }
    GB_LIST_EACH(&server->registry.orphans, struct gb_object, object, of_name)
        count_object(&count, object); /* until the next turn */
    GB_LIST_EACH(&server->sessions, struct gb_session, session, of_server) {
        sessions++;
        count_session(&count, session);
    }
    GB_LIST_EACH(&server->turns.leaving, const struct gb_session, session, leaving) {
        if (gb_session_has_ended(session))
            count_left(&count, session);
    }
    DEMAND(server->state.object_count == server->registry.grace_count);
    for (size_t i = 0; i < server->state.object_count; i++) {
        DEMAND(server->state.objects[i]->kept);
        count_object(&count, server->state.objects[i]);
    }
    GB_LIST_EACH(&server->registry.writer_list, struct gb_writer_process, process, of_all) {
        DEMAND(process->fd >= 0 || gb_list_linked(&process->unwatched));
        GB_LIST_EACH(&process->orphans, struct gb_orphan_writer, orphan, of_process) {
            const struct gb_holder *left = &orphan->holder;

            DEMAND(left->count > 0 && count_leases(&count, left) == left->count);
        }
    }
    GB_LIST_EACH(&store->empties, struct gb_segment, segment, empties)
        count_segment(&count, segment);

    DEMAND(sessions == server->session_count);
    DEMAND(count.leases == server->registry.leases.count);
    DEMAND(count.objects.count == server->registry.objects);
    DEMAND(count.mappings == store->mappings.count);
    DEMAND(count.timers == server->timers.count);
    all = server->spill.moves == 0 && (count.waits == 0 || !device->lanes[GB_OUT]);
    DEMAND(all ? count.segments.count == store->segments.count
               : count.segments.count <= store->segments.count);
    DEMAND(device->mover ? store->segments.count <= device->segments
                         : store->segments.count == device->segments);
    check_device(&count, device, all, inside->overfull);
    check_users(&count, sessions, all);
    DEMAND(gb_list_empty(&server->waits.waking) && gb_list_empty(&server->missings.woken));
    GB_LIST_EACH(&server->missings.providers.nobodys, struct gb_missing, missing, turn)
        DEMAND(missing->by_nobody);
    free(count.objects.items);
    free(count.storages.items);
    free(count.segments.items);
}

/* To be called when every peer is closed. Checks that only names are left, then deletes these and
   checks that all memory goes with them. */
static inline void inside_empty(struct inside *inside)
{
    struct gb_server *server = &inside->server;
    const struct gb_device *device = server->devices[0];
    struct gb_name *name;

    for (int turns = 0; server->session_count > 0; turns++) {
        DEMAND(turns < 8);
        inside_turn(inside);
    }
    /* Messages whose peers have not read what they were sent. */
    for (int turns = 0; !gb_list_empty(&server->flights.all); turns++) {
        DEMAND(turns < 8);
        server->flights.check_at = 0;
        inside_turn(inside);
    }
    DEMAND(server->flights.lingering == 0);
    inside_check(inside);
    /* All peers are of this process, which does not end. */
    gb_orphan_writers_end(&server->registry);
    inside_turn(inside);
    inside_check(inside);
    DEMAND(server->registry.leases.count == 0 && server->store.mappings.count == 0);
    DEMAND(device->leased == 0 && device->pinned_by_clients == 0);
    while ((name = gb_names_lower(&server->registry.names, "", 0, false)))
        gb_registry_unname(&server->registry, GB_CONTAINER(name, struct gb_object, index),
                           GB_EVENT_DELETED);
    gb_store_trim(&server->store, server->devices[0], UINT64_MAX);
    for (int turns = 0; device->moving + server->spill.moves + device->segments +
                            server->spill.tiers[GB_TIER_DISK].going >
                        0;
         turns++) {
        DEMAND(turns < 8);
        inside_turn(inside); /* what movers were still making is released too */
        gb_store_trim(&server->store, server->devices[0], UINT64_MAX);
    }
    DEMAND(device->allocated == 0 && device->used == 0 && device->pinned == 0);
    DEMAND(device->segments == 0 && device->objects == 0 && device->recency.count == 0);
    DEMAND(device->spilled == 0 && device->leaving == 0);
    DEMAND(server->waits.queues[0].overtaken == 0);
    for (int i = 0; i < GB_TIERS; i++)
        DEMAND(server->spill.tiers[i].used == 0 && server->spill.tiers[i].copies == 0);
    DEMAND(server->store.segments.count == 0 && server->store.domains.count == 0);
    DEMAND(server->store.users.table.count == 0 && server->registry.objects == 0);
    DEMAND(server->timers.count == 0 && server->registry.deadlines.count == 0);
    DEMAND(server->missings.table.count == 0 && gb_list_empty(&server->watches.news));
    DEMAND(gb_list_empty(&server->missings.providers.prefixes) &&
           gb_list_empty(&server->missings.providers.to_ask));
    inside_turn(inside); /* frees what was closed */
}

#endif
