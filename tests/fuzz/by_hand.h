/*
 * Movers, the clock and a service manager, run by hand: what threads, time and another process
 * decide otherwise is decided by the input, so that an input does the same whenever it is played.
 * Include it in one file of a target; tests/build.mk wraps clock_gettime, getrandom, uv_hrtime
 * and uv_now there. These functions take the place of daemon/memory/mover.c and
 * daemon/survive/notify.c (notify_fds.c is as it is).
 *
 * Jobs of every mover are in one queue, in the order in which they were submitted. Unless jobs are
 * held, a turn ends with all of them done.
 */
#ifndef GB_FUZZ_BY_HAND_H
#define GB_FUZZ_BY_HAND_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "daemon/memory/mover.h"
#include "daemon/survive/notify.h"
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
    return hand_clock_ms;
}

/* By how much each call moves uv_hrtime() on, and the sum of that, so that slices of time end only
   when the input says so. */
static uint64_t hand_tick_ns, hand_ticks_ns;

uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void)
{
    hand_ticks_ns += hand_tick_ns;
    return hand_clock_ms * 1000000 + hand_ticks_ns;
}

/* Every identity is 00112233445566778899aabbccddeeff. */
ssize_t __wrap_getrandom(void *data, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t length, unsigned flags)
{
    unsigned char *bytes = data;

    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(0x11 * (i % 16));
    return (ssize_t)length;
}

/* ---- movers ---- */

struct gb_mover {
    uint64_t jobs; /* submitted and not done */
};

static struct {
    struct gb_link queue;
    uint64_t count;
    bool hold; /* jobs are done one by one, when the input says so */
} hand_jobs = {.queue = {&hand_jobs.queue, &hand_jobs.queue}};

static struct gb_job *hand_first_job(void)
{
    return gb_list_empty(&hand_jobs.queue)
               ? NULL
               : GB_CONTAINER(hand_jobs.queue.next, struct gb_job, link);
}

/* Does the first job of the queue, from its work to its completion. False if there is none. */
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

void gb_job_note_progress(struct gb_job *job)
{
}

uint64_t gb_mover_stuck_ms(struct gb_mover *mover)
{
    return 0;
}

void gb_mover_end(struct gb_mover *mover)
{
    while (mover && hand_do_job())
        ;
    free(mover);
}

/* ---- the service manager ---- */

enum { HAND_KEPT = 64, HAND_FDS_FROM = 300 };

/* The descriptors that the service manager keeps. */
static struct hand_kept {
    char name[GB_NOTIFY_NAME_BYTES + 1];
    int fd;
} hand_kept[HAND_KEPT];
static unsigned hand_kept_count;

int gb_notify_store_fd(struct gb_notify *notify, const char *name, int fd)
{
    struct hand_kept *kept = &hand_kept[hand_kept_count];

    if (notify->socket < 0)
        return 0;
    if (hand_kept_count == HAND_KEPT)
        return GPUBUF_E_SYSTEM;
    kept->fd = fcntl(fd, F_DUPFD_CLOEXEC,
                     HAND_FDS_FROM); /* out of the range of the daemon's descriptors */
    if (kept->fd < 0)
        return GPUBUF_E_SYSTEM;
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    hand_kept_count++;
    return 0;
}

int gb_notify_unstore_fd(struct gb_notify *notify, const char *name)
{
    unsigned left = 0;

    if (notify->socket < 0)
        return 0;
    for (unsigned i = 0; i < hand_kept_count; i++)
        if (strcmp(hand_kept[i].name, name) == 0)
            close(hand_kept[i].fd);
        else
            hand_kept[left++] = hand_kept[i];
    hand_kept_count = left;
    return 0;
}

/* Hands all that the service manager keeps over to a new daemon. False if memory is out. */
static bool hand_over(struct gb_notify *notify)
{
    *notify = (struct gb_notify){.fds = calloc(HAND_KEPT, sizeof(struct gb_notify_fd))};
    if (!notify->fds)
        return false;
    for (unsigned i = 0; i < hand_kept_count; i++)
        notify->fds[notify->fd_count++] = (struct gb_notify_fd){
            strdup(hand_kept[i].name), fcntl(hand_kept[i].fd, F_DUPFD_CLOEXEC, 3)};
    return true;
}

static void hand_forget(void)
{
    while (hand_kept_count > 0)
        close(hand_kept[--hand_kept_count].fd);
}

void gb_notify_end(struct gb_notify *notify)
{
    for (unsigned i = 0; i < notify->fd_count; i++) {
        if (notify->fds[i].fd >= 0)
            close(notify->fds[i].fd);
        free((void *)(uintptr_t)notify->fds[i].name);
    }
    free(notify->fds);
    *notify = GB_NOTIFY_NONE;
}

/* Nothing is ever queued. */
void gb_notify_flush(struct gb_notify *notify)
{
}

uint64_t gb_notify_due(const struct gb_notify *notify)
{
    return UINT64_MAX;
}

bool gb_notify_wait_sent(struct gb_notify *notify, uint64_t timeout_ms)
{
    return true;
}

bool gb_notify_has_sent(const struct gb_notify *notify, uint64_t number)
{
    return true;
}

#define HAND_TOLD(function)                                                                        \
    int function(struct gb_notify *notify)                                                         \
    {                                                                                              \
        (void)notify;                                                                              \
        return 0;                                                                                  \
    }
HAND_TOLD(gb_notify_send_ready)
HAND_TOLD(gb_notify_send_watchdog)

void gb_notify_extend(struct gb_notify *notify)
{
    (void)notify;
}

int gb_notify_send_stopping(struct gb_notify *notify, bool for_good)
{
    return 0;
}

int gb_notify_send_status(struct gb_notify *notify, const char *format, ...)
{
    return 0;
}

#endif
