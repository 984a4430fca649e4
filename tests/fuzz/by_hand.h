/*
 * Movers and the clock, by hand: what is otherwise up to threads and to time is up to the input, so
 * that it means the same whenever it is played. Include it in one file of a target; the Makefile has
 * to wrap clock_gettime and uv_now there. These functions take the place of daemon/mover.c.
 *
 * Jobs of every mover are in one queue, in the order in which they were submitted. Unless jobs are
 * held, a turn ends with all of them done.
 */
#ifndef GB_FUZZ_BY_HAND_H
#define GB_FUZZ_BY_HAND_H

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/mover.h"
#include "gpubuf.h"

/* ---- the clock ---- */

/* Milliseconds since the beginning. */
static uint64_t hand_clock_ms = 1000000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    uint64_t ms = hand_clock_ms + (clock == CLOCK_REALTIME ? UINT64_C(1700000000000) : 0);

    now->tv_sec = (time_t)(ms / 1000);
    now->tv_nsec = (long)(ms % 1000 * 1000000);
    return 0;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return hand_clock_ms;
}

/* ---- movers ---- */

struct gb_mover {
    uint64_t jobs; /* submitted and not done */
};

static struct {
    struct gb_link queue;
    uint64_t count;
    bool hold; /* they are done one by one, when the input says so */
} hand_jobs = {.queue = {&hand_jobs.queue, &hand_jobs.queue}};

static struct gb_job *hand_first_job(void)
{
    return gb_list_empty(&hand_jobs.queue)
               ? NULL
               : GB_CONTAINER(hand_jobs.queue.next, struct gb_job, link);
}

/* Does the first job there is, from work to done. False if there is none. */
static bool hand_do_job(void)
{
    struct gb_job *job = hand_first_job();

    if (!job)
        return false;
    gb_list_remove(&job->link);
    hand_jobs.count--;
    job->work(job);
    job->done(job);
    return true;
}

int gb_mover_new(uv_loop_t *loop, struct gb_mover **mover)
{
    (void)loop;
    *mover = calloc(1, sizeof(**mover));
    return *mover ? 0 : GPUBUF_E_NO_MEMORY;
}

void gb_mover_submit(struct gb_mover *mover, struct gb_job *job)
{
    if (!mover) {
        job->work(job);
        job->done(job);
        return;
    }
    gb_list_append(&hand_jobs.queue, &job->link);
    hand_jobs.count++;
}

void gb_job_goes_on(struct gb_job *job)
{
    (void)job;
}

uint64_t gb_mover_stuck_ms(struct gb_mover *mover)
{
    (void)mover;
    return 0;
}

void gb_mover_end(struct gb_mover *mover)
{
    while (mover && hand_do_job())
        ;
    free(mover);
}

#endif
