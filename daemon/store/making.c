/* Memory on its way: jobs of a device's mover that make segments or adopt registered memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/store.h"
#include "proto/base/limits.h"

struct gb_making_job {
    struct gb_job job;
    struct gb_link of_store;
    struct gb_store *store;
    struct gb_domain_key key;
    enum gb_segment_kind kind;
    struct gb_user *user;
    uint64_t bytes; /* charged until the job is done; 0: adopting */
    enum gb_memory_state state;
    struct gb_making *waiting; /* the request's, which waits for the job; NULL: none does */
    bool finished;             /* adopting: the memory waits to be taken */
    bool unwanted;             /* give the segment back when it is made */
    int result;
    struct gb_error error;
    unsigned count; /* memories */
    struct gb_memory memories[GB_LIMIT(fds)];
    struct gb_adoption adoptions[]; /* adopting: `count`, with descriptors of its own */
};

static struct gb_making_job *job_new(struct gb_store *store, const struct gb_domain_key *key,
                                     struct gb_user *user, unsigned adoptions)
{
    struct gb_making_job *job = calloc(1, sizeof(*job) + adoptions * sizeof(job->adoptions[0]));

    if (!job)
        return NULL;
    job->store = store;
    job->key = *key;
    job->user = gb_user_ref(user);
    gb_list_append(&store->making, &job->of_store);
    return job;
}

/* Closes a descriptor that a client has sent: by the store's `drop`, since closing may block. */
static void drop_fd(const struct gb_making_job *job, int fd)
{
    if (fd < 0)
        return;
    if (job->store->drop)
        job->store->drop(job->store->drop_arg, job->user, fd);
    else
        close(fd);
}

static void job_free(struct gb_making_job *job)
{
    if (job->waiting)
        job->waiting->job = NULL;
    if (job->kind == GB_SEGMENT_ADOPTED)
        for (unsigned i = 0; i < job->count; i++)
            drop_fd(job, job->adoptions[i].fd);
    gb_list_remove(&job->of_store);
    gb_user_unref(job->user);
    free(job);
}

/* A job that gives memory back. */
struct discard_job {
    struct gb_job job;
    struct gb_device *device;
    struct gb_memory memory;
};

static void discard(struct gb_job *base)
{
    struct discard_job *job = GB_CONTAINER(base, struct discard_job, job);

    job->device->ops->destroy(job->device, &job->memory);
}

static void discarded(struct gb_job *base)
{
    free(GB_CONTAINER(base, struct discard_job, job));
}

void gb_memory_discard(struct gb_device *device, const struct gb_memory *memory)
{
    struct discard_job *job = malloc(sizeof(*job));
    struct gb_memory copy = *memory;

    if (!job) { /* waiting for the driver is better than losing the memory */
        device->ops->destroy(device, &copy);
        return;
    }
    *job = (struct discard_job){
        .job = {.work = discard, .done = discarded}, .device = device, .memory = copy};
    gb_mover_submit(device->mover, &job->job);
}

uint64_t gb_making_count(const struct gb_store *store, const struct gb_user *user)
{
    uint64_t count = 0;

    GB_LIST_EACH(&store->making, const struct gb_making_job, job, of_store) {
        if (job->user == user)
            count += job->kind == GB_SEGMENT_ADOPTED ? job->count : 1;
    }
    return count;
}

static void describe_failure(struct gb_making_job *job)
{
    if (gb_device_cuda_lost(job->error.cuda))
        job->key.device->lost = true;
    if (!job->waiting)
        return;
    job->waiting->code = job->result;
    job->waiting->error = job->error;
}

/* ---- making a segment ---- */

static void job_become(struct gb_making_job *job, enum gb_memory_state state)
{
    gb_memory_become(&job->state, state, job->user, job->key.device, job->bytes);
}

static void make(struct gb_job *base)
{
    struct gb_making_job *job = GB_CONTAINER(base, struct gb_making_job, job);
    struct gb_device *device = job->key.device;

    job->result =
        device->ops->create(device, job->key.share, job->bytes, &job->memories[0], &job->error);
}

static void made(struct gb_job *base)
{
    struct gb_making_job *job = GB_CONTAINER(base, struct gb_making_job, job);
    struct gb_device *device = job->key.device;
    struct gb_segment *segment = NULL;

    job_become(job, GB_MEMORY_NONE);
    gb_device_changed(device);
    if (job->result == 0)
        segment = gb_segment_new(job->store, job->kind, &job->key, job->user, job->bytes,
                                 &job->memories[0]);
    if (job->result == 0 && !segment) {
        gb_memory_discard(device, &job->memories[0]);
        job->result = gb_fail_memory(&job->error);
    }
    if (job->result < 0) {
        describe_failure(job);
    } else if (job->unwanted) {
        gb_segment_retire(job->store, segment);
    } else if (job->waiting) {
        gb_making_tried(job->waiting);
        job->waiting->made = segment;
        segment->kept = job->waiting;
    }
    job_free(job);
}

int gb_making_begin(struct gb_placing *placing, enum gb_segment_kind kind, uint64_t bytes)
{
    struct gb_device *device = placing->key->device;
    struct gb_making_job *job = job_new(placing->store, placing->key, placing->user, 0);

    if (!job)
        return gb_fail_memory(placing->error);
    job->kind = kind;
    job->bytes = bytes;
    job_become(job, GB_MEMORY_MAKING);
    job->job = (struct gb_job){.work = make, .done = made};
    placing->job = job;
    gb_mover_submit(device->mover, &job->job);
    return GB_PLACE_MAKING;
}

bool gb_making_comes(const struct gb_store *store, const struct gb_domain_key *key, uint64_t bytes)
{
    GB_LIST_EACH(&store->making, const struct gb_making_job, job, of_store) {
        if (job->kind == GB_SEGMENT_SHARED && job->bytes >= bytes &&
            gb_domain_key_same(&job->key, key))
            return true;
    }
    return false;
}

/* ---- how large, and when ---- */

#define FIRST_SHARED ((uint64_t)2 << 20)

static uint64_t largest_of(const struct gb_domain *domain)
{
    uint64_t largest = 0;

    GB_LIST_EACH(&domain->shared, const struct gb_segment, segment, place) {
        if (segment->bytes > largest)
            largest = segment->bytes;
    }
    return largest;
}

/* The shared segments of a domain double from 2 MiB up to the largest that the device gets, as far
   as its budget goes; and up to an eighth of the user's quota, so that free ranges do not take much
   of that. A segment is always large enough for the storage. */
uint64_t gb_making_bytes(const struct gb_domain *domain, const struct gb_storage *storage)
{
    const struct gb_device *device = storage->key.device;
    const struct gb_user *user = storage->maker.user;
    uint64_t quota = user->quota->bytes[device->index], held = user->held[device->index];
    uint64_t unit = device->granularity, need = gb_round_up(storage->size, unit);
    uint64_t next = largest_of(domain) * 2;
    const uint64_t most[] = {gb_store_largest_shared(device), quota / 8,
                             held <= quota ? quota - held : UINT64_MAX,
                             gb_device_free_bytes(device)};

    if (next < FIRST_SHARED)
        next = FIRST_SHARED;
    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++)
        if (next > most[i])
            next = most[i];
    next = next / unit * unit;
    return next > need ? next : need;
}

/* A domain has one such segment at a time. It takes at most a quarter of what is left to the device
   and to the user. It is a segment like others: charged, kept for a time while it is empty, and
   given back as soon as a request lacks room. */
void gb_making_ahead(struct gb_store *store, const struct gb_domain *domain,
                     const struct gb_storage *storage)
{
    struct gb_device *device = domain->key.device;
    struct gb_user *user = storage->maker.user;
    uint64_t quota = user->quota->bytes[device->index], held = user->held[device->index], bytes;
    struct gb_arena_stats stats;
    struct gb_error ignored;
    struct gb_placing ahead = {
        .store = store, .key = &domain->key, .user = user, .error = &ignored};

    if (!device->mover || held > quota)
        return;
    gb_arena_stats(domain->arena, &stats);
    if (stats.bytes - stats.used >= gb_store_largest_shared(device) / 2 ||
        stats.bytes - stats.used >= largest_of(domain) / 2)
        return;
    bytes = gb_making_bytes(domain, storage);
    if (bytes > gb_device_free_bytes(device) / 4 || bytes > (quota - held) / 4 ||
        gb_making_comes(store, &domain->key, 0) ||
        gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, gb_making_count(store, user) + 1,
                         &ignored) < 0)
        return;
    (void)gb_making_begin(&ahead, GB_SEGMENT_SHARED, bytes);
}

uint64_t gb_making_trim(struct gb_store *store, struct gb_device *device,
                        const struct gb_user *user, uint64_t bytes)
{
    uint64_t going = 0;

    GB_LIST_EACH(&store->making, struct gb_making_job, job, of_store) {
        if (going >= bytes)
            break;
        if (job->kind == GB_SEGMENT_ADOPTED || job->key.device != device || job->waiting ||
            job->unwanted || (user && job->user != user))
            continue;
        job->unwanted = true;
        going += job->bytes;
        job_become(job, GB_MEMORY_FREEING);
    }
    return going;
}

/* ---- adopting ---- */

int gb_adopt_all(struct gb_device *device, const struct gb_adoption *adoptions, unsigned count,
                 struct gb_memory *memories, struct gb_error *error)
{
    for (unsigned i = 0; i < count; i++) {
        struct gb_error why = {0};
        int r =
            device->ops->adopt(device, &adoptions[i].handle, adoptions[i].fd, &memories[i], &why);

        if (r == 0)
            continue;
        gb_fail(error, r, "params.handles[%u]: %s", i, why.message);
        if (error)
            error->cuda = why.cuda;
        while (i-- > 0)
            device->ops->destroy(device, &memories[i]);
        return r;
    }
    return 0;
}

static void adopt(struct gb_job *base)
{
    struct gb_making_job *job = GB_CONTAINER(base, struct gb_making_job, job);

    job->result =
        gb_adopt_all(job->key.device, job->adoptions, job->count, job->memories, &job->error);
}

/* Gives back adopted memory for which no request waits any more. */
static void drop_adopted(struct gb_making_job *job)
{
    for (unsigned i = 0; i < job->count; i++)
        gb_memory_discard(job->key.device, &job->memories[i]);
    job_free(job);
}

static void adopted(struct gb_job *base)
{
    struct gb_making_job *job = GB_CONTAINER(base, struct gb_making_job, job);

    gb_device_changed(job->key.device); /* so that the request is tried again */
    job->finished = true;
    if (job->result < 0) {
        describe_failure(job);
        job_free(job);
    } else if (!job->waiting) {
        drop_adopted(job);
    }
}

int gb_making_adopt(struct gb_placing *placing)
{
    struct gb_making_job *job =
        job_new(placing->store, placing->key, placing->user, placing->count);

    if (!job)
        return gb_fail_memory(placing->error);
    job->kind = GB_SEGMENT_ADOPTED;
    for (; job->count < placing->count; job->count++) {
        struct gb_adoption *adoption = &job->adoptions[job->count];

        *adoption = placing->adoptions[job->count];
        if (adoption->fd < 0)
            continue;
        adoption->fd = fcntl(adoption->fd, F_DUPFD_CLOEXEC, 3);
        if (adoption->fd < 0) {
            gb_fail(placing->error, GPUBUF_E_LIMIT, "the daemon cannot open another descriptor: %s",
                    strerror(errno));
            job_free(job);
            return GPUBUF_E_LIMIT;
        }
    }
    job->job = (struct gb_job){.work = adopt, .done = adopted};
    placing->job = job;
    gb_mover_submit(placing->key->device->mover, &job->job);
    return GB_PLACE_MAKING;
}

void gb_making_move_memories(struct gb_making *making, struct gb_memory *memories)
{
    struct gb_making_job *job = making->job;

    memcpy(memories, job->memories, job->count * sizeof(*memories));
    job_free(job);
}

/* ---- waiting ---- */

void gb_making_attach(struct gb_making *making, struct gb_making_job *job)
{
    making->job = job;
    job->waiting = making;
}

bool gb_making_busy(const struct gb_making *making)
{
    return making->job && !making->job->finished;
}

void gb_making_tried(struct gb_making *making)
{
    if (making->made)
        making->made->kept = NULL;
    making->made = NULL;
}

void gb_making_end(struct gb_making *making)
{
    struct gb_making_job *job = making->job;

    gb_making_tried(making);
    if (!job)
        return;
    job->waiting = NULL;
    making->job = NULL;
    if (job->finished)
        drop_adopted(job);
}
