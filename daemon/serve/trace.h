/*
 * A file that shows people how the daemon spends its time: requests, waits and moves in Chrome's
 * trace format. Perfetto or chrome://tracing can open it at any moment, also after the daemon was
 * killed. The format is a JSON array whose end may be missing; each write ends with a whole line.
 *
 * The loop's thread gathers lines, and a thread of its own writes them. If that does not keep up
 * lines are dropped and counted, so that memory is bounded and the loop never waits for a disk. All
 * functions are the loop's thread's, and do nothing if the trace is NULL.
 */
#ifndef GB_TRACE_H
#define GB_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/serve/server.h"
#include "proto/errors.h"

struct gb_trace;

/* If the configuration asks for a trace, begins its file anew and makes server->trace. To be called
   when the server listens, and before it runs. A failure is a sentence for the person who started
   the daemon. */
int gb_trace_begin(struct gb_server *server, struct gb_error *error);
/* Writes the lines that are left, and the end of the array. To be called before the server ends. */
void gb_trace_end(struct gb_server *server);

/* Gives the session's row in the picture a name. */
void gb_trace_session(struct gb_trace *trace, uint64_t session, int pid, const char *client);
/* Writes a request of a session, which took `ns` from `begun_ns` on (uv_hrtime), with "ok" or an
   error's kind. `waited`: it was put aside before it was served. */
void gb_trace_request(struct gb_trace *trace, uint64_t session, const char *method,
                      const char *result, uint64_t begun_ns, uint64_t ns, bool waited);

#endif
