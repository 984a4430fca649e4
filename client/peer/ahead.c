#include "client/peer/ahead.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; an older kernel makes nothing ahead */
#endif

enum {
    CHUNKS = 8,     /* that the thread makes at a time */
    AHEAD_MOST = 24 /* chunks ahead of those that have come; a third of them are asked for */
};

struct gb_peer_ahead {
    uv_loop_t *loop;
    struct gpubuf_object *object; /* a reference */
    const struct gb_peer_content
        *content;        /* NULL: gb_peer_ahead_end was called while the thread runs */
    uint64_t done, came; /* chunks */
    bool busy;           /* the thread has the members below */
    uv_work_t work;
    struct {
        char *memory;
        size_t bytes;
    } stretches[CHUNKS];
    unsigned count;
};

static void drop(struct gb_peer_ahead *ahead)
{
    gpubuf_release(ahead->object);
    free(ahead);
}

/* In a thread of the pool. */
static void populate(uv_work_t *work)
{
    const struct gb_peer_ahead *ahead = work->data;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (unsigned i = 0; i < ahead->count; i++) {
        size_t before = (uintptr_t)ahead->stretches[i].memory % page;
        (void)madvise(ahead->stretches[i].memory - before, ahead->stretches[i].bytes + before,
                      MADV_POPULATE_WRITE);
    }
}

static void go_on(struct gb_peer_ahead *ahead);

static void on_populated(uv_work_t *work, int status)
{
    struct gb_peer_ahead *ahead = work->data;

    (void)status;
    ahead->busy = false;
    if (ahead->content)
        go_on(ahead);
    else
        drop(ahead);
}

static void go_on(struct gb_peer_ahead *ahead)
{
    uint64_t bytes = ahead->content->bytes, chunks = gb_peer_content_chunks(bytes);
    uint64_t end = ahead->came + AHEAD_MOST < chunks ? ahead->came + AHEAD_MOST : chunks;

    if (ahead->done < ahead->came)
        ahead->done = ahead->came;
    for (ahead->count = 0; ahead->done < end && ahead->count < CHUNKS; ahead->done++) {
        char *memory = gb_peer_content_direct(ahead->content, ahead->done);
        if (!memory)
            continue;
        ahead->stretches[ahead->count].memory = memory;
        ahead->stretches[ahead->count++].bytes =
            (size_t)gb_peer_content_chunk_bytes(bytes, ahead->done);
    }
    if (ahead->count > 0)
        ahead->busy = uv_queue_work(ahead->loop, &ahead->work, populate, on_populated) == 0;
}

void gb_peer_ahead_move(struct gb_peer_ahead *ahead, uint64_t came)
{
    if (!ahead)
        return;
    ahead->came = came;
    if (!ahead->busy)
        go_on(ahead);
}

struct gb_peer_ahead *gb_peer_ahead_new(uv_loop_t *loop, struct gpubuf_object *object,
                                        const struct gb_peer_content *content)
{
    /* For a single chunk, waking a thread takes longer than it saves. */
    struct gb_peer_ahead *ahead = content->bytes > GB_PEER_CHUNK ? malloc(sizeof(*ahead)) : NULL;

    if (!ahead)
        return NULL;
    *ahead = (struct gb_peer_ahead){.loop = loop, .object = object, .content = content};
    ahead->work.data = ahead;
    gpubuf_retain(object);
    return ahead;
}

void gb_peer_ahead_end(struct gb_peer_ahead *ahead)
{
    if (!ahead)
        return;
    ahead->content = NULL;
    if (!ahead->busy)
        drop(ahead);
    else /* the work may not have begun; on_populated is called in any case */
        (void)uv_cancel((uv_req_t *)&ahead->work);
}
