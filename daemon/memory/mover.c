#include "daemon/memory/mover.h"

#include <stdlib.h>

#include "gpubuf.h"

struct gb_mover {
    uv_thread_t thread;
    uv_mutex_t lock;
    uv_cond_t wake;
    uv_async_t finished;        /* wakes the loop */
    struct gb_link queue, done; /* guarded by lock */
    bool stop;                  /* guarded by lock: once the queue is empty */
    struct gb_job *current;     /* guarded by lock: the job that is being done; NULL: none */
};

static struct gb_job *pop_first(struct gb_link *list)
{
    struct gb_job *job = GB_LIST_FIRST(list, struct gb_job, link);

    if (job)
        gb_list_remove(&job->link);
    return job;
}

static void run(void *arg)
{
    struct gb_mover *mover = arg;

    uv_mutex_lock(&mover->lock);
    for (;;) {
        struct gb_job *job = pop_first(&mover->queue);

        if (job) {
            gb_job_note_progress(job);
            mover->current = job;
            uv_mutex_unlock(&mover->lock);
            job->work(job);
            uv_mutex_lock(&mover->lock);
            mover->current = NULL;
            gb_list_append(&mover->done, &job->link);
            uv_async_send(&mover->finished);
        } else if (mover->stop) {
            break;
        } else {
            uv_cond_wait(&mover->wake, &mover->lock);
        }
    }
    uv_mutex_unlock(&mover->lock);
}

static void finish(struct gb_mover *mover)
{
    struct gb_job *job;

    uv_mutex_lock(&mover->lock);
    while ((job = pop_first(&mover->done))) {
        uv_mutex_unlock(&mover->lock);
        job->done(job);
        uv_mutex_lock(&mover->lock);
    }
    uv_mutex_unlock(&mover->lock);
}

static void on_finished(uv_async_t *handle)
{
    finish(handle->data);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

int gb_mover_new(uv_loop_t *loop, struct gb_mover **out)
{
    struct gb_mover *mover = calloc(1, sizeof(*mover));

    if (!mover)
        return GPUBUF_E_NO_MEMORY;
    if (uv_mutex_init(&mover->lock) < 0)
        goto no_lock;
    if (uv_cond_init(&mover->wake) < 0)
        goto no_condition;
    if (uv_async_init(loop, &mover->finished, on_finished) < 0)
        goto no_async;
    mover->finished.data = mover;
    if (uv_thread_create(&mover->thread, run, mover) < 0) {
        uv_close((uv_handle_t *)&mover->finished, on_closed); /* frees it */
        uv_cond_destroy(&mover->wake);
        uv_mutex_destroy(&mover->lock);
        return GPUBUF_E_SYSTEM;
    }
    *out = mover;
    return 0;

no_async:
    uv_cond_destroy(&mover->wake);
no_condition:
    uv_mutex_destroy(&mover->lock);
no_lock:
    free(mover);
    return GPUBUF_E_SYSTEM;
}

void gb_mover_submit(struct gb_mover *mover, struct gb_job *job)
{
    if (!mover) {
        job->work(job);
        job->done(job);
        return;
    }
    uv_mutex_lock(&mover->lock);
    gb_list_append(&mover->queue, &job->link);
    uv_cond_signal(&mover->wake);
    uv_mutex_unlock(&mover->lock);
}

void gb_job_note_progress(struct gb_job *job)
{
    atomic_store_explicit(&job->alive, uv_hrtime(), memory_order_relaxed);
}

uint64_t gb_mover_stuck_ms(struct gb_mover *mover)
{
    uint64_t now = uv_hrtime(), alive = now;

    if (!mover)
        return 0;
    uv_mutex_lock(&mover->lock);
    if (mover->current)
        alive = atomic_load_explicit(&mover->current->alive, memory_order_relaxed);
    uv_mutex_unlock(&mover->lock);
    return alive < now ? (now - alive) / 1000000 : 0;
}

void gb_mover_end(struct gb_mover *mover)
{
    struct gb_job *job;

    if (!mover)
        return;
    uv_mutex_lock(&mover->lock);
    mover->stop = true;
    uv_cond_signal(&mover->wake);
    uv_mutex_unlock(&mover->lock);
    uv_thread_join(&mover->thread);
    finish(mover);
    while ((job = pop_first(&mover->queue))) { /* submitted by the end of another job */
        job->work(job);
        job->done(job);
    }
    uv_close((uv_handle_t *)&mover->finished, on_closed);
    uv_cond_destroy(&mover->wake);
    uv_mutex_destroy(&mover->lock);
}
