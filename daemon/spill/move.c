#include "daemon/spill/move.h"

#include <string.h>
#include <sys/mman.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/failure.h"

/* ---- the content of a storage, piece by piece ---- */

struct pieces {
    const struct gb_storage *storage;
    unsigned at;
    uint64_t done; /* bytes of the current piece */
    uint64_t all;  /* bytes of the content */
};

/* A piece of registered memory is a whole segment. Other storages have one piece, the content. */
static uint64_t piece_bytes(const struct gb_storage *storage, unsigned at)
{
    return storage->adopted ? storage->placements[at].segment->bytes : storage->size;
}

/* Fills `own` with zeros for the gap before a registered piece, of `bytes` at most. Returns how
   many those are. Only needed on the way out: restored content has one piece. */
static uint64_t pass_gap(struct pieces *pieces, void *own, uint64_t bytes)
{
    uint64_t gap = gb_content_next(pieces->all) - pieces->all;

    if (pieces->at == 0 || pieces->done > 0 || gap == 0)
        return 0;
    if (bytes > gap)
        bytes = gap;
    memset(own, 0, bytes);
    pieces->all += bytes;
    return bytes;
}

/* Begins to copy the next `bytes` at most. Returns how many those are, 0 at the end, or a negative
   code. */
static int64_t copy_piece(struct pieces *pieces, enum gb_direction direction, void *own,
                          uint64_t bytes, struct gb_error *error)
{
    const struct gb_storage *storage = pieces->storage;
    const struct gb_placement *placement;
    uint64_t rest, gap;
    int r;

    if (pieces->at == storage->placement_count)
        return 0;
    gap = pass_gap(pieces, own, bytes);
    if (gap > 0)
        return (int64_t)gap;
    placement = &storage->placements[pieces->at];
    rest = piece_bytes(storage, pieces->at) - pieces->done;
    if (bytes > rest)
        bytes = rest;
    r = storage->key.device->ops->copy(
        storage->key.device, direction, &placement->segment->memory, placement->segment->bytes,
        gb_placement_offset(placement) + pieces->done, own, bytes, error);
    if (r < 0)
        return r;
    pieces->done += bytes;
    pieces->all += bytes;
    if (bytes == rest) {
        pieces->at++;
        pieces->done = 0;
    }
    return (int64_t)bytes;
}

/* Begins to copy `bytes` exactly, across pieces. */
static int copy_pieces(struct pieces *pieces, enum gb_direction direction, char *own,
                       uint64_t bytes, struct gb_error *error)
{
    while (bytes > 0) {
        int64_t n = copy_piece(pieces, direction, own, bytes, error);

        if (n <= 0)
            return n < 0 ? (int)n
                         : gb_fail(error, GPUBUF_E_INTERNAL, "the content is shorter than it was");
        own += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int check_stop(struct gb_move *move, struct gb_error *error)
{
    gb_job_note_progress(&move->job); /* a large copy takes long, but no single chunk does */
    if (!atomic_load_explicit(move->stop, memory_order_relaxed))
        return 0;
    return gb_fail(error, GPUBUF_E_CLOSED, "the daemon stops");
}

/* ---- between a device and the host tier ---- */

static int copy_host(struct gb_move *move, enum gb_direction direction, const struct gb_copy *copy)
{
    struct gb_device *device = move->storage->key.device;
    struct gb_pinned *pinned = copy->tier->pinned;
    uint64_t offset = gb_copy_offset(copy), end = offset + copy->bytes;
    struct pieces pieces = {.storage = move->storage};
    int r = 0, finished;

    while (r == 0 && offset < end) {
        uint64_t bytes = gb_pinned_span(pinned, device, offset, end - offset);

        r = check_stop(move, &move->error);
        if (r == 0)
            r = copy_pieces(&pieces, direction, gb_pinned_at(pinned, offset), bytes, &move->error);
        offset += bytes;
    }
    finished = device->ops->finish_copies(device, direction, r == 0 ? &move->error : NULL);
    return r < 0 ? r : finished;
}

/* ---- between a device and a file ---- */

/* The lane's stage, made when it is first used: two halves, so that the device copies one while the
   file is written from or read into the other. */
static char *stage(struct gb_device *device, enum gb_direction direction, struct gb_error *error)
{
    char *memory = device->stages[direction];

    if (memory)
        return memory;
    memory =
        mmap(NULL, 2 * GB_STAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        gb_fail_memory(error);
        return NULL;
    }
    if (device->ops->pin && device->ops->pin(device, memory, 2 * GB_STAGE_BYTES, NULL) == 0)
        device->stage_pinned[direction] = true;
    device->stages[direction] = memory;
    return memory;
}

void gb_move_end_lane(struct gb_device *device, enum gb_direction direction)
{
    if (!device->stages[direction])
        return;
    if (device->stage_pinned[direction])
        device->ops->unpin(device, device->stages[direction]);
    munmap(device->stages[direction], 2 * GB_STAGE_BYTES);
    device->stages[direction] = NULL;
}

/* Notes whether the tier has failed, by the result of a call of its file's. Memory or descriptors
   that are out say nothing of what lies there. */
static int of_tier(struct gb_move *move, int r)
{
    move->tier_failed = r < 0 && !gb_is_passing(r);
    return r;
}

static uint64_t chunk_of(uint64_t rest)
{
    return rest < GB_STAGE_BYTES ? rest : GB_STAGE_BYTES;
}

static int write_file(struct gb_move *move, struct gb_spill_file *file, char *memory)
{
    struct gb_device *device = move->storage->key.device;
    struct pieces pieces = {.storage = move->storage};
    uint64_t rest = move->storage->size, bytes = chunk_of(rest);
    int r = copy_pieces(&pieces, GB_OUT, memory, bytes, &move->error), finished;

    for (int half = 0; r == 0 && rest > 0; half = !half) {
        uint64_t next;

        r = device->ops->finish_copies(device, GB_OUT, &move->error);
        rest -= bytes;
        next = chunk_of(rest);
        if (r == 0)
            r = check_stop(move, &move->error);
        if (r == 0 && next > 0)
            r = copy_pieces(&pieces, GB_OUT, memory + (half ? 0 : GB_STAGE_BYTES), next,
                            &move->error);
        if (r == 0)
            r = of_tier(move, gb_spill_file_write(file, memory + (half ? GB_STAGE_BYTES : 0), bytes,
                                                  &move->error));
        bytes = next;
    }
    finished = device->ops->finish_copies(device, GB_OUT, r == 0 ? &move->error : NULL);
    return r < 0 ? r : finished;
}

static int read_file(struct gb_move *move, struct gb_spill_file *file, char *memory)
{
    struct gb_device *device = move->storage->key.device;
    struct pieces pieces = {.storage = move->storage};
    uint64_t rest = move->storage->size;
    int r = 0, finished;

    for (int half = 0; r == 0 && rest > 0; half = !half) {
        char *at = memory + (half ? GB_STAGE_BYTES : 0);
        uint64_t bytes = chunk_of(rest);

        r = check_stop(move, &move->error);
        if (r == 0)
            r = of_tier(move, gb_spill_file_read(file, at, bytes, &move->error));
        if (r == 0) /* the next chunk goes into the other half, which the device must have copied */
            r = device->ops->finish_copies(device, GB_IN, &move->error);
        if (r == 0)
            r = copy_pieces(&pieces, GB_IN, at, bytes, &move->error);
        rest -= bytes;
    }
    finished = device->ops->finish_copies(device, GB_IN, r == 0 ? &move->error : NULL);
    return r < 0 ? r : finished;
}

static int copy_from_file(struct gb_move *move)
{
    const struct gb_copy *copy = move->from;
    char *memory = stage(move->storage->key.device, GB_IN, &move->error);
    struct gb_spill_file *file;
    int r;

    if (!memory)
        return GPUBUF_E_NO_MEMORY;
    r = of_tier(move, gb_spill_file_open(copy->tier->dir, copy->file, copy->owner, copy->bytes,
                                         &file, &move->error));
    if (r < 0)
        return r;
    r = read_file(move, file, memory);
    if (r == 0)
        r = of_tier(move, gb_spill_file_verify(file, &move->error));
    gb_spill_file_close(file);
    return r;
}

static int write_from_host(struct gb_move *move, struct gb_spill_file *file)
{
    const struct gb_copy *from = move->from;
    uint64_t offset = gb_copy_offset(from), rest = from->bytes;
    int r = 0;

    while (r == 0 && rest > 0) {
        uint64_t bytes = chunk_of(rest);

        r = check_stop(move, &move->error);
        if (r == 0)
            r = of_tier(move, gb_spill_file_write(file, gb_pinned_at(from->tier->pinned, offset),
                                                  bytes, &move->error));
        offset += bytes;
        rest -= bytes;
    }
    return r;
}

static int copy_to_file(struct gb_move *move)
{
    const struct gb_copy *copy = move->to;
    char *memory = NULL;
    struct gb_spill_file *file;
    int r;

    if (!move->from && !(memory = stage(move->storage->key.device, GB_OUT, &move->error)))
        return GPUBUF_E_NO_MEMORY;
    r = of_tier(
        move, gb_spill_file_create(copy->tier->dir, copy->file, copy->owner, &file, &move->error));
    if (r < 0)
        return r;
    r = move->from ? write_from_host(move, file) : write_file(move, file, memory);
    if (r == 0)
        r = of_tier(move, gb_spill_file_finish(file, &move->error));
    gb_spill_file_close(file);
    return r;
}

/* ---- the job ---- */

void gb_move_work(struct gb_job *job)
{
    struct gb_move *move = GB_CONTAINER(job, struct gb_move, job);
    uint64_t start = gb_now_us();

    gb_failpoint(move->to ? GB_FAILPOINT_OUT_BEGIN : GB_FAILPOINT_IN_BEGIN);
    if (move->to && move->to->tier->kind == GB_TIER_DISK)
        move->result = copy_to_file(move);
    else if (move->to)
        move->result = copy_host(move, GB_OUT, move->to);
    else if (move->from->tier->kind == GB_TIER_DISK)
        move->result = copy_from_file(move);
    else
        move->result = copy_host(move, GB_IN, move->from);
    move->microseconds = gb_now_us() - start;
    gb_failpoint(move->to ? GB_FAILPOINT_OUT_COPIED : GB_FAILPOINT_IN_COPIED);
}
