/*
 * A thread for work that may block on a driver. Such work is a *job*: the mover's thread does the
 * jobs in order, and each is finished on the loop's thread. A job for a device without a mover (the
 * host) is done and finished at once, by the same call.
 */
#ifndef GB_MOVER_H
#define GB_MOVER_H

#include <stdatomic.h>
#include <uv.h>

#include "proto/base/list.h"

/* Embedded in the struct that the job is about. Belongs to the mover from gb_mover_submit() until
   `done` is called. */
struct gb_job {
    struct gb_link link;
    void (*work)(struct gb_job *job); /* on the mover's thread */
    void (*done)(struct gb_job *job); /* on the loop's thread; may free the job */
    _Atomic uint64_t alive;           /* when it began, or last went on: uv_hrtime() */
};

/* Notes that a long job makes progress. The mover's thread calls it. */
void gb_job_note_progress(struct gb_job *job);

struct gb_mover;

/* GPUBUF_E_NO_MEMORY, GPUBUF_E_SYSTEM. The loop's thread calls this and everything below. */
int gb_mover_new(uv_loop_t *loop, struct gb_mover **mover);
/* `mover` NULL: works and is done before this returns. */
void gb_mover_submit(struct gb_mover *mover, struct gb_job *job);
/* How long the current job has made no progress; 0: there is no job, or no mover. */
uint64_t gb_mover_stuck_ms(struct gb_mover *mover);
/* Finishes every job, also those that a finished job submits, and stops the thread. The loop frees
   the mover's memory when it runs next. NULL is fine. */
void gb_mover_end(struct gb_mover *mover);

#endif
