/*
 * The one thread of a device that may block on a driver: what a device does that can take long is a
 * job, done there, in order, and finished on the loop's thread. A device without a mover (the host)
 * does its jobs at once, so that whoever submits one need not know.
 */
#ifndef GB_MOVER_H
#define GB_MOVER_H

#include <stdatomic.h>
#include <uv.h>

#include "daemon/base/list.h"

/* Embedded in what the job is about. Belongs to the mover from submitting until `done` is called.
 */
struct gb_job {
    struct gb_link link;
    void (*work)(struct gb_job *job); /* on the mover's thread */
    void (*done)(struct gb_job *job); /* on the loop's thread; may free the job */
    _Atomic uint64_t alive;           /* when it began, or last went on: uv_hrtime() */
};

/* Says, in the midst of work that takes long, that it goes on. The mover's thread. */
void gb_job_goes_on(struct gb_job *job);

struct gb_mover;

/* GPUBUF_E_NO_MEMORY, GPUBUF_E_SYSTEM. The loop's thread calls this and everything below. */
int gb_mover_new(uv_loop_t *loop, struct gb_mover **mover);
/* `mover` NULL: works and is done before this returns. */
void gb_mover_submit(struct gb_mover *mover, struct gb_job *job);
/* For how long the job at hand has not gone on; 0: there is none, or no mover. */
uint64_t gb_mover_stuck_ms(struct gb_mover *mover);
/* Finishes every job, also those that finishing brings, stops the thread. The loop must run once
   more for the mover's memory to go. NULL is fine. */
void gb_mover_end(struct gb_mover *mover);

#endif
