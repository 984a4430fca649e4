/*
 * A recorded trace of what a session asked of a cache: those in tests/bench/traces say in their
 * first lines of what; scripts/run-bench unpacks them. Not for threads.
 */
#ifndef TRACE_H
#define TRACE_H

#include <stddef.h>
#include <stdint.h>

enum trace_what { TRACE_CREATE = 'c', TRACE_OPEN = 'o', TRACE_RELEASE = 'r', TRACE_DELETE = 'd' };

struct trace_operation {
    enum trace_what what;
    uint32_t name;
    uint64_t bytes; /* TRACE_CREATE */
};

struct trace {
    struct trace_operation *operations;
    size_t count, names;
};

/* Reads a file; ends the program with a sentence if it cannot. */
void trace_read(struct trace *trace, const char *path);
void trace_end(struct trace *trace);

#endif
