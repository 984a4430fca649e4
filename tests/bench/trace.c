#include "trace.h"

#include "measure.h"

static void add(struct trace *trace, size_t *room, struct trace_operation operation)
{
    if (trace->count == *room) {
        *room = *room ? *room * 2 : 4096;
        trace->operations = realloc(trace->operations, *room * sizeof(*trace->operations));
        if (!trace->operations)
            die("out of memory");
    }
    trace->operations[trace->count++] = operation;
    if (operation.name >= trace->names)
        trace->names = operation.name + 1;
}

void trace_read(struct trace *trace, const char *path)
{
    FILE *file = fopen(path, "re");
    size_t room = 0;
    char line[128];

    *trace = (struct trace){0};
    if (!file)
        die("cannot read %s", path);
    for (unsigned number = 1; fgets(line, sizeof(line), file); number++) {
        unsigned long long bytes = 0;
        unsigned name;
        char what;
        int read = sscanf(line, "%*u %c %u %llu", &what, &name, &bytes);

        if (*line == '#')
            continue;
        if (read < 2 || !strchr("cord", what) || (what == 'c') != (read == 3))
            die("%s:%u: expected MS OP NAME [BYTES]", path, number);
        add(trace, &room, (struct trace_operation){(enum trace_what)what, name, bytes});
    }
    fclose(file);
    if (trace->count == 0)
        die("%s: nothing is in it", path);
}

void trace_end(struct trace *trace)
{
    free(trace->operations);
}
