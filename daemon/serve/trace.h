/*
 * Where time goes, for people: requests, waits and moves in Chrome's trace format, in a file that
 * can be opened in Perfetto or chrome://tracing at any moment, also after the daemon was killed.
 * The format is a JSON array whose end may be missing; each write ends with a whole line.
 *
 * Lines are gathered on the loop's thread and written by a thread of its own; when that does not
 * keep up they are dropped and counted, so that memory is bounded and the loop never waits for a
 * disk. The loop's thread calls; a NULL trace is one that nobody wants.
 */
#ifndef GB_TRACE_H
#define GB_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/serve/server.h"
#include "proto/errors.h"

struct gb_trace;

/* Begins the configuration's file anew, and makes server->trace, if one is asked for. When the
   server listens and before it runs. A failure is a sentence for the person who started us. */
int gb_trace_begin(struct gb_server *server, struct gb_error *error);
/* Writes what is left, and the end of the array, before the server ends. */
void gb_trace_end(struct gb_server *server);

/* A session's line in the picture gets a name. */
void gb_trace_session(struct gb_trace *trace, uint64_t session, int pid, const char *client);
/* A request of a session: served from `begun_ns` on for `ns` (uv_hrtime), with an error's kind or
   "ok". `waited`: it had been put aside before. */
void gb_trace_request(struct gb_trace *trace, uint64_t session, const char *method,
                      const char *result, uint64_t begun_ns, uint64_t ns, bool waited);

#endif
