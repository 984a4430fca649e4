/* Streams: frames of a live array, by base/ring.h. The daemon is asked who takes part, and for
   nothing else. */
#include "client/lib/objects/stream.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/process.h"
#include "client/lib/base/ring.h"
#include "client/lib/memory/gpu.h"
#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/gpu_word.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/request.h"
#include "client/lib/wire/wait.h"

#define SLOTS 8u
#define REST_NS 20000 /* between looks at a word that a GPU writes */
#define LOOK_MS 100   /* how often a call that waits looks after the connection */

struct gpubuf_stream {
    struct gpubuf_object *object; /* counted; it counts its client */
    struct gb_gpu *gpu;           /* NULL: it is on the host */
    char *data;
    uint64_t stride; /* from slot to slot, in bytes */
    bool writes, each, waits, ahead;
    bool asks, rests; /* what comes before a frame: the daemon's answer, or a GPU's work */
    unsigned hold, lag;
    struct gb_gpu_page own, front;     /* what the GPU has of its page, and of the writer's */
    struct gb_ring_frame early;        /* was read, and is not complete; number 0: none */
    uint64_t numbers[GB_STREAM_SLOTS]; /* of frames that the reader holds on a GPU; 0: none */
    bool ends[GB_STREAM_SLOTS];        /* slots that it holds until the GPU has said so in `done` */
    unsigned ending;                   /* how many */
    uint64_t canceled;                 /* a frame that was used and never was complete; 0: none */
    void *page;                        /* the one that it writes */
    void *roster;                      /* NULL: it has not joined yet */
    union {
        struct gb_ring_writer writer;
        struct gb_ring_reader reader;
    };
};

static struct gpubuf_client *client_of(const struct gpubuf_stream *stream)
{
    return stream->object->lease->client;
}

/* ---- join ---- */

struct claim {
    uint64_t reader, fd;
};

struct joined {
    uint64_t writer, page, roster, reader, front, epoch;
    struct gb_json claims;
};

struct join {
    struct gb_request base;
    struct gpubuf_stream *stream;
};

/* Maps a page that cannot shrink. NULL: it can, or memory is out. */
static void *map_page(const struct gb_reply *reply, uint64_t fd, bool write)
{
    struct stat status;

    if (fd >= reply->fd_count)
        return NULL;
    int file = reply->fds[fd], seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &status) < 0 ||
        status.st_size < (off_t)GB_STREAM_PAGE_BYTES)
        return NULL;
    void *page =
        mmap(NULL, GB_STREAM_PAGE_BYTES, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return NULL;
    /* A child of fork takes no part. */
    (void)madvise(page, GB_STREAM_PAGE_BYTES, MADV_DONTFORK);
    return page;
}

static void unmap_page(const void *page)
{
    if (page)
        (void)munmap((void *)(uintptr_t)page, GB_STREAM_PAGE_BYTES);
}

static int map_claims(struct gpubuf_stream *stream, const struct gb_reply *reply,
                      const struct joined *joined, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct claim, reader, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, GB_STREAM_READERS - 1),
        GB_FIELD(struct claim, fd, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_path path = {.key = "claims"};
    struct gb_json_walk walk = gb_json_walk(joined->claims);
    struct gb_json key, item;

    while (gb_json_next(&walk, &key, &item)) {
        struct claim claim = {0};
        int r = gb_json_read(item, fields, 2, GB_UNKNOWN_IGNORE, &path, &client_of(stream)->pool,
                             &claim, NULL, error);
        if (r < 0)
            return r;
        void *page = map_page(reply, claim.fd, false);
        if (!page)
            return gb_fail(error, GPUBUF_E_SYSTEM, "a reader's page cannot be mapped");
        unmap_page(stream->writer.claims[claim.reader]);
        stream->writer.claims[claim.reader] = page;
    }
    stream->writer.epoch = (uint32_t)joined->epoch;
    return 0;
}

/* The first answer: the pages of this stream's own, and the daemon's. */
static int take_part(struct gpubuf_stream *stream, const struct gb_reply *reply,
                     const struct joined *joined, struct gb_error *error)
{
    unsigned slots = (unsigned)stream->object->shape[0];
    void *page = map_page(reply, joined->page, true);
    void *roster = map_page(reply, joined->roster, false);

    if (!page || !roster) {
        unmap_page(page);
        unmap_page(roster);
        return gb_fail(error, GPUBUF_E_SYSTEM, "the stream's pages cannot be mapped");
    }
    stream->page = page;
    stream->roster = roster;
    if (stream->writes) {
        gb_ring_write(&stream->writer, page, roster, slots, (uint32_t)joined->writer);
        stream->writer.on_gpu = stream->gpu != NULL;
    } else {
        stream->object->lease->access.reader = 1 + (unsigned)joined->reader;
        gb_ring_join(&stream->reader, page, roster, slots, stream->hold, stream->each,
                     stream->waits ? (stream->lag + 1) / 2 : 0);
    }
    return 0;
}

/* The reader is done with a frame: the writer may have its slot. */
static void end_frame(struct gpubuf_stream *stream, unsigned slot)
{
    if (stream->numbers[slot] &&
        gb_ring_ready(&stream->reader, slot, stream->numbers[slot]) == GB_RING_OVER)
        stream->canceled = stream->numbers[slot];
    stream->numbers[slot] = 0;
    gb_ring_done(&stream->reader, slot);
}

/* Ends the frames that work on the GPU is done with. */
static void end_frames(struct gpubuf_stream *stream)
{
    const struct gb_stream_claim *claim = stream->page;

    for (unsigned slot = 0; stream->ending && slot < GB_STREAM_SLOTS; slot++) {
        if (!stream->ends[slot] || atomic_load_explicit(&claim->done[slot], memory_order_acquire) !=
                                       (uint32_t)stream->numbers[slot])
            continue;
        stream->ends[slot] = false;
        stream->ending--;
        end_frame(stream, slot);
    }
}

/* Another writer has joined: its page replaces the last one's, which no longer changes. */
static void follow(struct gpubuf_stream *stream, const struct gb_stream_front *front,
                   uint32_t writer)
{
    gb_gpu_end_page(&stream->front); /* no work waits for it any more */
    end_frames(stream);
    for (unsigned i = 0; i < GB_STREAM_SLOTS; i++)
        if (stream->numbers[i] && stream->reader.front &&
            gb_ring_ready(&stream->reader, i, stream->numbers[i]) == GB_RING_OVER)
            stream->canceled = stream->numbers[i];
    unmap_page(stream->reader.front);
    gb_ring_follow(&stream->reader, front, writer);
}

static int join_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct joined, writer, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, UINT32_MAX),
        GB_FIELD(struct joined, page, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct joined, roster, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct joined, reader, GB_FIELD_UINT, 0, 0, GB_STREAM_READERS - 1),
        GB_FIELD(struct joined, front, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct joined, claims, GB_FIELD_ARRAY, 0, 0, 0),
        GB_FIELD(struct joined, epoch, GB_FIELD_UINT, 0, 0, UINT32_MAX),
    };
    struct gpubuf_stream *stream = ((struct join *)request)->stream;
    struct joined joined = {.page = UINT64_MAX, .roster = UINT64_MAX, .front = UINT64_MAX};
    struct gb_path path = {.key = "result"};

    if (reply->refused)
        return reply->refused->code;
    if (request->canceled)
        return 0; /* nobody has the stream any more */
    int r = gb_json_read(reply->result, fields, 7, GB_UNKNOWN_IGNORE, &path, &request->client->pool,
                         &joined, NULL, error);
    if (r < 0)
        return r == GPUBUF_E_NO_MEMORY ? r : (error->code = GPUBUF_E_PROTOCOL);
    if (!stream->roster)
        r = take_part(stream, reply, &joined, error);
    if (r == 0 && stream->writes && joined.claims.text)
        r = map_claims(stream, reply, &joined, error);
    if (r == 0 && !stream->writes && joined.front != UINT64_MAX) {
        const struct gb_stream_front *front = map_page(reply, joined.front, false);
        if (!front)
            return gb_fail(error, GPUBUF_E_SYSTEM, "the writer's page cannot be mapped");
        follow(stream, front, (uint32_t)joined.writer);
    }
    return r;
}

static void join_free(struct gb_request *request)
{
    free(request);
}

static int join_send(struct gb_request *request, struct gb_error *error)
{
    struct gpubuf_client *client = request->client;
    const struct gpubuf_stream *stream = ((struct join *)request)->stream;
    const struct gb_client_lease *lease = stream->object->lease;

    if (atomic_load(&lease->state) == GB_LEASE_STALE)
        return gb_fail(error, GPUBUF_E_STALE, "\"%s\" went with its daemon", lease->name);
    struct gb_writer *writer = gb_request_begin(client, request, "join", 0);
    gb_write_format(writer, "{\"lease\":%" PRIu64, lease->id);
    if (stream->roster)
        gb_write_format(writer, ",\"since\":%" PRIu32,
                        stream->writes ? stream->writer.epoch : stream->reader.writer);
    else if (!stream->writes)
        gb_write_format(writer, ",\"hold\":%u,\"lag\":%u", stream->hold, stream->lag);
    gb_write_char(writer, '}');
    client->lingers = true;
    return gb_request_send(client, request, NULL, 0, GB_RELEASES_FIRST, error);
}

static const struct gb_request_type join_type = {
    .reply = join_reply, .resend = join_send, .free = join_free};

/* Sends a join and waits for its answer, with the client entered. */
static int join_now(struct gpubuf_client *client, struct gpubuf_stream *stream)
{
    struct gb_error error;
    /* A part whose answer was lost stays with the process. */
    unsigned pages = stream->writes ? GB_LIMIT(fds) : stream->roster ? 1 : 3;

    if (!gb_process_has_room(pages)) {
        (void)gb_fail_errno(&error, "%u descriptors for the stream's pages", pages);
        return gb_report(client, &error);
    }
    struct join *join = calloc(1, sizeof(*join));

    if (!join)
        return gb_report_memory(client);
    join->base.type = &join_type;
    join->base.client = client;
    join->base.waited = true;
    join->stream = stream;
    int r = join_send(&join->base, &error);
    if (r < 0) {
        free(join);
        return gb_report(client, &error);
    }
    struct gb_request *request = &join->base;
    r = gb_request_wait(client, &request, client->requests.timeout_ms);
    if (request)
        join_free(request);
    return r;
}

/* Asks the daemon: for taking part, or for the pages of those that have joined since. */
static int join(struct gpubuf_stream *stream)
{
    struct gpubuf_client *client = client_of(stream);
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    r = join_now(client, stream);
    gb_leave(client);
    return r;
}

/* ---- making one ---- */

static int read_options(const struct gpubuf_client *client,
                        const struct gpubuf_stream_options *given,
                        struct gpubuf_stream_options *options)
{
    int r = gb_read_options(client, given, options, sizeof(*options));

    if (r < 0)
        return r;
    if (options->slots == 0)
        options->slots = SLOTS;
    if (options->hold == 0)
        options->hold = 1;
    if (options->each && options->lag == 0)
        options->lag = 2;
    if (options->slots < 2 || options->slots > GB_STREAM_SLOTS || options->hold > GB_STREAM_SLOTS ||
        options->lag > GB_STREAM_SLOTS)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "slots is %u, hold %u, lag %u: expected 2 to %u slots, and hold and "
                              "lag no larger",
                              options->slots, options->hold, options->lag, GB_STREAM_SLOTS);
    return 0;
}

/* The options are complete. */
static int begin(struct gpubuf_object *object, bool writes,
                 const struct gpubuf_stream_options *options, struct gpubuf_stream **out)
{
    static const char *const kinds[] = {"bytes", "an array", "a column", "a table", "a bundle"};
    struct gpubuf_client *client = object->lease->client;
    struct gpubuf_stream *stream = calloc(1, sizeof(*stream));
    struct gpubuf_memory memory;
    struct gb_error error;
    int r = stream ? 0 : gb_report_memory(client);

    if (r == 0 && (object->kind != GPUBUF_KIND_ARRAY || object->ndim < 1 || object->shape[0] < 2 ||
                   object->shape[0] > GB_STREAM_SLOTS))
        r = gb_report_text(client, GPUBUF_E_UNSUPPORTED,
                           "\"%s\" is no stream, which is a live array of 2 to %u slots: it is %s",
                           object->lease->name, GB_STREAM_SLOTS, kinds[object->kind]);
    if (r == 0)
        r = gpubuf_memory(object, GPUBUF_DATA, &memory);
    if (r == 0 && gb_client_lease_gpu(object->lease, &stream->gpu, &error) < 0)
        r = gb_report(client, &error);
    if (r < 0) {
        free(stream);
        gpubuf_release(object);
        return r;
    }
    stream->object = object;
    stream->data = memory.pointer;
    stream->stride = memory.bytes / object->shape[0];
    stream->writes = writes;
    stream->each = options->each;
    stream->waits = options->each && options->waits;
    stream->ahead = options->ahead;
    stream->hold = options->hold;
    stream->lag = options->lag;
    r = join(stream);
    if (r < 0)
        gpubuf_stream_close(stream);
    else
        *out = stream;
    return r;
}

int gb_stream_begin(struct gpubuf_object *object, bool writes,
                    const struct gpubuf_stream_options *given, struct gpubuf_stream **stream)
{
    struct gpubuf_stream_options options;
    int r = read_options(object->lease->client, given, &options);

    if (r == 0)
        return begin(object, writes, &options, stream);
    gpubuf_release(object);
    return r;
}

/* Whether the object has such frames. */
static bool has_frames(const struct gpubuf_object *object, const char *dtype, unsigned ndim,
                       const uint64_t *shape)
{
    return object->kind == GPUBUF_KIND_ARRAY && strcmp(object->dtype, dtype) == 0 &&
           object->ndim == ndim + 1 &&
           (ndim == 0 || memcmp(object->shape + 1, shape, ndim * sizeof(*shape)) == 0);
}

/* Says in a stream's terms why its name could not be claimed. */
static int tell_taken(const struct gpubuf_client *client, const char *name, int code)
{
    char said[512];

    snprintf(said, sizeof(said), "%s", gpubuf_errmsg(client));
    const char *writer = strstr(said, " by session ");
    if (code == GPUBUF_E_UNSUPPORTED && strstr(said, "is not live"))
        return gb_report_text(client, GPUBUF_E_EXISTS,
                              "\"%s\" exists, and is no stream: delete it first", name);
    if ((code == GPUBUF_E_BUSY || code == GPUBUF_E_TIMEOUT) && writer)
        return gb_report_text(client, code, "\"%s\" has a writer: %s", name, writer + 4);
    return code;
}

int gpubuf_stream_create(struct gpubuf_client *client, const char *name, const char *dtype,
                         unsigned ndim, const uint64_t *shape,
                         const struct gpubuf_stream_options *given, struct gpubuf_stream **stream)
{
    struct gpubuf_stream_options options;
    uint64_t slots[33];
    struct gpubuf_object *object;
    int r = read_options(client, given, &options);

    if (r == 0 && (!dtype || ndim > 31))
        r = gb_report_text(client, GPUBUF_E_INVALID, "no dtype, or a frame of more than 31 axes");
    if (r < 0)
        return r;
    slots[0] = options.slots;
    if (ndim > 0)
        memcpy(slots + 1, shape, ndim * sizeof(*shape));
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_ARRAY, .dtype = dtype, .ndim = ndim + 1, .shape = slots};
    const struct gpubuf_create_options create = {.size = sizeof(create),
                                                 .device = options.device,
                                                 .mode = options.mode,
                                                 .wait_ms = options.wait_ms,
                                                 .live = true};
    const struct gpubuf_open_options open = {
        .size = sizeof(open), .wait_ms = options.wait_ms, .write = true, .exclusive = true};
    r = gpubuf_create(client, name, &layout, &create, &object);
    if (r == GPUBUF_E_CLOSED) /* if the answer was lost with a connection, it is there by now */
        r = gpubuf_create(client, name, &layout, &create, &object);
    if (r == 0)
        gpubuf_release(object);
    if (r == 0 || r == GPUBUF_E_EXISTS)
        r = gpubuf_open(client, name, &open, &object);
    if (r < 0)
        return tell_taken(client, name, r);
    if (!has_frames(object, dtype, ndim, shape)) {
        gpubuf_release(object);
        return gb_report_text(client, GPUBUF_E_EXISTS,
                              "\"%s\" has frames of another dtype or shape: delete it first", name);
    }
    return begin(object, true, &options, stream);
}

int gpubuf_stream_open(struct gpubuf_client *client, const char *name,
                       const struct gpubuf_stream_options *given, struct gpubuf_stream **stream)
{
    struct gpubuf_stream_options options;
    struct gpubuf_object *object;
    int r = read_options(client, given, &options);

    if (r < 0)
        return r;
    const struct gpubuf_open_options open = {.size = sizeof(open), .wait_ms = options.wait_ms};
    r = gpubuf_open(client, name, &open, &object);
    return r < 0 ? r : begin(object, false, &options, stream);
}

static void unmap_pages(struct gpubuf_stream *stream)
{
    gb_gpu_end_page(&stream->front);
    gb_gpu_end_page(&stream->own);
    if (stream->roster && stream->writes) {
        for (unsigned i = 0; i < GB_STREAM_READERS; i++)
            unmap_page(stream->writer.claims[i]);
    } else if (stream->roster) {
        unmap_page(stream->reader.front);
    }
    unmap_page(stream->page);
    unmap_page(stream->roster);
}

void gpubuf_stream_close(struct gpubuf_stream *stream)
{
    if (!stream)
        return;
    if (!gb_is_forked(stream->object->lease->client)) /* a child has none of them */
        unmap_pages(stream);
    gpubuf_release(stream->object);
    free(stream);
}

struct gpubuf_object *gpubuf_stream_object(const struct gpubuf_stream *stream)
{
    return stream->object;
}

/* ---- frames ---- */

/* Whether the stream may be used so, and is what it was. */
static int check(const struct gpubuf_stream *stream, bool writes)
{
    const struct gpubuf_client *client = client_of(stream);

    if (gb_is_forked(client))
        return gb_report_text(client, GPUBUF_E_FORKED,
                              "the stream belongs to the parent process; connect anew");
    if (stream->writes != writes)
        return gb_report_text(client, GPUBUF_E_INVALID, "the stream is for %s",
                              stream->writes ? "writing" : "reading");
    if (atomic_load(&client->disconnected))
        return gb_report_text(client, GPUBUF_E_CLOSED, "the client has disconnected");
    if (atomic_load(&stream->object->lease->state) == GB_LEASE_STALE)
        return gb_report_text(
            client, GPUBUF_E_STALE,
            "the stream went with its daemon, or this process takes part in it no "
            "longer: close it and open it again");
    return 0;
}

static void describe(const struct gpubuf_stream *stream, unsigned slot, struct gpubuf_frame *frame)
{
    *frame = (struct gpubuf_frame){
        .pointer = stream->data + slot * stream->stride, .bytes = stream->stride, .slot = slot};
}

static void rest_briefly(void)
{
    const struct timespec time = {.tv_nsec = REST_NS};

    (void)nanosleep(&time, NULL);
}

int gb_stream_next_now(struct gpubuf_stream *stream, bool waits, struct gpubuf_frame *frame)
{
    int r = check(stream, true);

    stream->asks = stream->rests = false;
    if (r < 0)
        return r;
    if (waits && gb_ring_late(&stream->writer) >= 0)
        return GPUBUF_E_AGAIN;
    int slot = gb_ring_acquire_slot(&stream->writer);
    if (slot < 0) {
        stream->asks = slot == GB_RING_PAGES;
        stream->rests =
            !stream->asks && gb_ring_works(&stream->writer); /* its own work is behind */
        if (stream->asks || stream->rests)
            return GPUBUF_E_AGAIN;
        return gb_report_text(client_of(stream), GPUBUF_E_BUSY, "readers hold all slots");
    }
    describe(stream, (unsigned)slot, frame);
    frame->number = stream->writer.head + 1;
    return 0;
}

int gpubuf_stream_next(struct gpubuf_stream *stream, int64_t timeout_ms, struct gpubuf_frame *frame)
{
    int64_t deadline = gb_deadline_ms(timeout_ms);
    int r, left = gb_left_ms(deadline);

    /* When time is over no reader is late: one that lies may be so for ever. */
    for (; (r = gb_stream_next_now(stream, left != 0, frame)) == GPUBUF_E_AGAIN;
         left = gb_left_ms(deadline))
        if ((r = gb_stream_wait(stream, left, NULL)) < 0)
            return r;
    return r;
}

/* Waits for work on the stream's GPU. */
static int wait_for_work(const struct gpubuf_stream *stream, void *work)
{
    struct gb_error error;

    if (!stream->gpu || gb_gpu_finish(stream->gpu, work, &error) == 0)
        return 0;
    return gb_report(client_of(stream), &error);
}

/* Says in the slot when its frame is complete: the GPU itself, once it is; where that cannot be,
   the call waits. */
static int complete(struct gpubuf_stream *stream, unsigned slot, void *work)
{
    struct gb_stream_front *front = stream->page;
    _Atomic uint32_t *ready = &front->slots[slot].ready;
    uint32_t number = (uint32_t)stream->writer.head + 1;

    if (!stream->gpu)
        return 0;
    atomic_store(ready, number - 1); /* whoever waits for this frame waits */
    if (gb_gpu_write_word(&stream->own, stream->gpu, front, GB_STREAM_PAGE_BYTES, ready, number,
                          work))
        return 0;
    int r = wait_for_work(stream, work);
    if (r == 0)
        atomic_store(ready, number);
    return r;
}

int gpubuf_stream_publish(struct gpubuf_stream *stream, const struct gpubuf_frame *frame,
                          void *work)
{
    int r = check(stream, true);

    if (r == 0 && (stream->writer.taken < 0 || frame->slot != (unsigned)stream->writer.taken ||
                   frame->bytes > stream->stride))
        r = gb_report_text(client_of(stream), GPUBUF_E_INVALID,
                           "the frame is not the one of gpubuf_stream_next, or longer than a slot");
    if (r == 0)
        r = complete(stream, frame->slot, work);
    if (r < 0)
        return r;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)gb_ring_publish(&stream->writer, frame->bytes,
                          (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    return 0;
}

/* Looks for the next frame; GB_RING_NONE, too, if it is not complete yet. */
static int find_frame(struct gpubuf_stream *stream, struct gb_ring_frame *read)
{
    struct gb_ring_reader *reader = &stream->reader;
    uint64_t missed = 0;
    int why = 0;

    end_frames(stream);
    /* A writer leaves no more frames that are none; a hostile one may continue to report some. */
    for (unsigned tries = 0; tries < GB_STREAM_SLOTS; tries++, missed = read->missed + 1) {
        if (!stream->early.number && (why = gb_ring_read(reader, &stream->early)) < 0)
            return why;
        *read = stream->early;
        read->missed += missed;
        why = stream->gpu && !stream->ahead ? gb_ring_ready(reader, read->slot, read->number) : 0;
        if (why == GB_RING_NONE)
            return why;
        stream->early.number = 0;
        if (why == 0)
            return 0;
        gb_ring_done(reader, read->slot); /* its writer ended before: it is none */
    }
    return GB_RING_NONE;
}

/* Tells once that a frame that was used ahead of the writer's work never was complete. */
static int tell_canceled(struct gpubuf_stream *stream)
{
    uint64_t number = stream->canceled;

    stream->canceled = 0;
    return number ? gb_report_text(client_of(stream), GPUBUF_E_CANCELED,
                                   "the writer of \"%s\" ended before frame %" PRIu64
                                   " was complete: what was made of it is void",
                                   stream->object->lease->name, number)
                  : 0;
}

/* GPUBUF_E_AGAIN without a sentence, which gpubuf_stream_read adds. */
int gb_stream_read_now(struct gpubuf_stream *stream, struct gpubuf_frame *frame)
{
    const struct gpubuf_client *client = client_of(stream);
    struct gb_ring_frame read;
    int r = check(stream, false);

    if (r < 0)
        return r;
    int why = find_frame(stream, &read);
    if ((r = tell_canceled(stream)) < 0) {
        stream->early = why == 0 ? read : stream->early;
        return r;
    }
    stream->asks = why == GB_RING_PAGES;
    stream->rests = stream->early.number || stream->ending;
    if (why == GB_RING_FULL && !stream->ending)
        return gb_report_text(client, GPUBUF_E_BUSY,
                              "%u frames are held already: give one back, or open with a larger "
                              "hold",
                              stream->hold);
    if (why == GB_RING_OVER)
        return gb_report_text(client, GPUBUF_E_UNAVAILABLE, "the writer of \"%s\" has ended",
                              stream->object->lease->name);
    if (why == GB_RING_LIES)
        return gb_report_text(client, GPUBUF_E_PROTOCOL,
                              "the writer of \"%s\" announces a frame that is in no slot: its page "
                              "is not as streams have it",
                              stream->object->lease->name);
    if (why < 0)
        return GPUBUF_E_AGAIN;
    describe(stream, read.slot, frame);
    if (read.bytes < frame->bytes)
        frame->bytes = read.bytes;
    frame->number = read.number;
    frame->time_ns = read.time_ns;
    frame->missed = read.missed;
    if (stream->gpu)
        stream->numbers[read.slot] = read.number;
    return 0;
}

/* For ring.c's waits: how long, until the connection is looked after again. */
static int64_t look_ns(int left_ms)
{
    return (left_ms < 0 || left_ms > LOOK_MS ? LOOK_MS : left_ms) * INT64_C(1000000);
}

/* Waits for a frame that was not there. */
static int wait_for_news(struct gpubuf_stream *stream, int64_t timeout_ms, const _Atomic bool *stop)
{
    int64_t deadline = gb_deadline_ms(timeout_ms);
    int r = 0;

    for (; r == 0 && !(stop && atomic_load(stop)); r = check(stream, false)) {
        int left = gb_left_ms(deadline);
        if (left == 0)
            return gb_report_text(client_of(stream), GPUBUF_E_TIMEOUT, "no new frame in time");
        if (gb_ring_wait(&stream->reader, look_ns(left)))
            break;
    }
    return r;
}

/* Waits for readers that want to be waited for; those late at the deadline are passed. */
static int wait_for_readers(struct gpubuf_stream *stream, int64_t timeout_ms,
                            const _Atomic bool *stop)
{
    int64_t deadline = gb_deadline_ms(timeout_ms);
    int r = 0;

    for (; r == 0 && !(stop && atomic_load(stop)); r = check(stream, true)) {
        int left = gb_left_ms(deadline);
        if (left == 0)
            gb_ring_pass_late(&stream->writer);
        if (left == 0 || gb_ring_late(&stream->writer) < 0)
            break;
        gb_ring_wait_late(&stream->writer, look_ns(left));
    }
    return r;
}

int gb_stream_wait(struct gpubuf_stream *stream, int64_t timeout_ms, const _Atomic bool *stop)
{
    if (stream->asks)
        return join(stream);
    if (stream->rests && (timeout_ms != 0 || stream->writes)) {
        rest_briefly(); /* for the GPU, which wakes nobody */
        return 0;
    }
    return stream->writes ? wait_for_readers(stream, timeout_ms, stop)
                          : wait_for_news(stream, timeout_ms, stop);
}

int gpubuf_stream_read(struct gpubuf_stream *stream, int64_t timeout_ms, struct gpubuf_frame *frame)
{
    int64_t deadline = gb_deadline_ms(timeout_ms);
    int r;

    while ((r = gb_stream_read_now(stream, frame)) == GPUBUF_E_AGAIN) {
        if (timeout_ms == 0 && !stream->asks)
            return gb_report_text(client_of(stream), GPUBUF_E_AGAIN, "no new frame");
        r = gb_stream_wait(stream, gb_left_ms(deadline), NULL);
        if (r < 0)
            return r;
    }
    return r;
}

/* Whether the reader holds this frame, and its GPU has not been told to give it back. */
static int check_held(const struct gpubuf_stream *stream, const struct gpubuf_frame *frame)
{
    int r = check(stream, false);

    if (r == 0 && (frame->slot >= GB_STREAM_SLOTS ||
                   (stream->gpu &&
                    (stream->numbers[frame->slot] != frame->number || stream->ends[frame->slot]))))
        r = gb_report_text(client_of(stream), GPUBUF_E_INVALID, "the frame is not held");
    return r;
}

int gpubuf_stream_wait(struct gpubuf_stream *stream, const struct gpubuf_frame *frame, void *work)
{
    int r = check_held(stream, frame);

    if (r < 0 || !stream->gpu || !stream->ahead)
        return r;
    const struct gb_stream_front *front = stream->reader.front;
    if (frame->number >> GB_STREAM_COUNT_BITS != stream->reader.writer ||
        gb_gpu_wait_word(&stream->front, stream->gpu, front, GB_STREAM_PAGE_BYTES,
                         &front->slots[frame->slot].ready, (uint32_t)frame->number, work))
        return 0;
    while (r == 0 && gb_ring_ready(&stream->reader, frame->slot, frame->number) == GB_RING_NONE) {
        rest_briefly();
        r = check(stream, false);
    }
    return r;
}

int gpubuf_stream_done(struct gpubuf_stream *stream, const struct gpubuf_frame *frame, void *work)
{
    struct gb_stream_claim *claim = stream->page;
    int r = check_held(stream, frame);

    if (r < 0)
        return r;
    if (stream->gpu &&
        gb_gpu_write_word(&stream->own, stream->gpu, claim, GB_STREAM_PAGE_BYTES,
                          &claim->done[frame->slot], (uint32_t)frame->number, work)) {
        stream->ends[frame->slot] = true;
        stream->ending++;
        return 0;
    }
    r = wait_for_work(stream, work);
    if (r == 0)
        end_frame(stream, frame->slot);
    return r;
}
