/*
 * Calls of the library that may wait for long: for a frame, for room, for the daemon. Each runs in
 * a thread of the addon's own, since libuv has four for all files and names. An idle thread takes
 * the next call; as many are kept as ran at the same time.
 */
#ifndef GB_NODE_JOB_H
#define GB_NODE_JOB_H

#include "client/node/src/completion.h"

/* Begins a job, whose completion has that id, and takes it over. Returns undefined, or NULL after
   an exception. */
napi_value gb_job_begin(struct gb_addon *addon, napi_value id, struct gb_node_job *job);
/* Drops the jobs that have not begun, and waits for the others, in whose way nothing is any more.
   */
void gb_jobs_end(struct gb_addon *addon);

#endif
