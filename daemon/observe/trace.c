#include "daemon/observe/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/observe/feed.h"
#include "proto/json.h"

#define OUTLET_BYTES (16u << 20)
#define BLOCK_BYTES (32u << 10) /* are handed over at once, less once in a while */
#define FLUSH_NS 200000000u
#define NICENESS 10
#define PAGE_BYTES 4096u /* no line is as long */

struct gb_trace {
    int fd, pid;
    uint64_t start_ns, flushed_ns, next_id;
    uint64_t lines, dropped; /* of the block at hand; told when there is room again */
    struct gb_writer block;
    struct gb_outlet outlet;
    uv_sem_t wake;
    uv_thread_t thread;
    char page[PAGE_BYTES]; /* the thread's */
    size_t filled;
    atomic_bool stop, failed; /* failed: the disk; nothing more is written */
};

/* ---- the thread ---- */

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

/*
 * A write may be cut short by a kill, or be seen in part, where one page ends and the next begins. So
 * pages are what is written, filled up with spaces: lines are there as a whole or not at all.
 */
static void write_page(struct gb_trace *trace)
{
    size_t filled = trace->filled;

    trace->filled = 0;
    if (filled == 0 || atomic_load(&trace->failed))
        return;
    memset(trace->page + filled, ' ', PAGE_BYTES - filled);
    trace->page[PAGE_BYTES - 1] = '\n';
    if (write_all(trace->fd, trace->page, PAGE_BYTES))
        return;
    gb_log(GB_LOG_ERROR, "the trace ends here", GB_LOG_TEXT("why", strerror(errno)));
    atomic_store(&trace->failed, true);
}

static void write_line(struct gb_trace *trace, const char *line, size_t length)
{
    if (trace->filled + length > PAGE_BYTES - 1)
        write_page(trace);
    memcpy(trace->page + trace->filled, line, length);
    trace->filled += length;
}

static void write_batch(struct gb_trace *trace, const struct gb_batch *batch)
{
    const struct gb_record *record = NULL;

    while ((record = gb_batch_next(batch, record))) {
        const char *line = record->text + record->topic_bytes + 1;
        const char *end = line + record->json_bytes, *newline;

        while (line < end && (newline = memchr(line, '\n', (size_t)(end - line)))) {
            write_line(trace, line, (size_t)(newline + 1 - line));
            line = newline + 1;
        }
    }
    write_page(trace);
}

static void run(void *arg)
{
    struct gb_trace *trace = arg;
    struct gb_batch *batch;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread alone */
    for (;;) {
        bool stop = atomic_load(&trace->stop);

        while ((batch = gb_outlet_take(&trace->outlet))) {
            write_batch(trace, batch);
            gb_batch_unref(batch);
        }
        if (stop)
            return;
        uv_sem_wait(&trace->wake);
    }
}

static void wake(void *arg)
{
    struct gb_trace *trace = arg;

    uv_sem_post(&trace->wake);
}

/* ---- the loop's side ---- */

static void hand_over(struct gb_trace *trace)
{
    struct gb_batch *batch = gb_batch_new();
    uint64_t before = gb_outlet_dropped(&trace->outlet);

    trace->flushed_ns = uv_hrtime();
    if (batch && !trace->block.failed &&
        gb_batch_add(batch, 0, "", 0, trace->block.data, trace->block.length))
        gb_outlet_put(&trace->outlet, batch);
    if (!batch || gb_outlet_dropped(&trace->outlet) > before)
        trace->dropped += trace->lines;
    gb_batch_unref(batch);
    gb_writer_reset(&trace->block);
    trace->lines = 0;
}

/* The end of a line: they all end with a comma, so that the next may follow. */
static void end_line(struct gb_trace *trace)
{
    GB_WRITE_LITERAL(&trace->block, "},\n");
    trace->lines++;
    if (trace->block.length >= BLOCK_BYTES)
        hand_over(trace);
}

static void write_time(struct gb_trace *trace, const char *member, uint64_t ns)
{
    gb_write_format(&trace->block, ",\"%s\":%" PRIu64 ".%03" PRIu64, member, ns / 1000, ns % 1000);
}

/* {"name":…,"cat":…,"ph":…,"ts":…,"pid":…,"tid":…, open for more. Names here need no escapes. */
static void begin_line(struct gb_trace *trace, const char *name, const char *category, char phase,
                       uint64_t at_ns, uint64_t thread)
{
    gb_write_format(&trace->block,
                    "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"%c\",\"pid\":%d,\"tid\":%" PRIu64,
                    name, category, phase, trace->pid, thread);
    write_time(trace, "ts", at_ns > trace->start_ns ? at_ns - trace->start_ns : 0);
}

static void name_line(struct gb_trace *trace, const char *what, uint64_t thread, const char *name)
{
    gb_write_format(
        &trace->block,
        "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu64 ",\"args\":{\"name\":", what,
        trace->pid, thread);
    gb_write_cstring(&trace->block, name);
    gb_write_char(&trace->block, '}');
    end_line(trace);
}

int gb_trace_new(const char *path, struct gb_trace **out, struct gb_error *error)
{
    struct gb_trace *trace = calloc(1, sizeof(*trace));

    if (!trace || gb_outlet_init(&trace->outlet, OUTLET_BYTES, wake, trace) < 0) {
        free(trace);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    trace->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (trace->fd < 0) {
        gb_fail_errno(error, "cannot write the trace %s", path);
        gb_outlet_end(&trace->outlet);
        free(trace);
        return GPUBUF_E_SYSTEM;
    }
    trace->pid = getpid();
    trace->start_ns = trace->flushed_ns = uv_hrtime();
    gb_writer_init(&trace->block, 0);
    GB_WRITE_LITERAL(&trace->block, "[\n");
    name_line(trace, "process_name", 0, "gpubufd");
    name_line(trace, "thread_name", 0, "moves");
    if (uv_sem_init(&trace->wake, 0) < 0 || uv_thread_create(&trace->thread, run, trace) < 0) {
        close(trace->fd);
        gb_writer_end(&trace->block);
        gb_outlet_end(&trace->outlet);
        free(trace);
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for the trace");
    }
    hand_over(trace); /* so that there is something to open at any moment */
    *out = trace;
    return 0;
}

void gb_trace_end(struct gb_trace *trace)
{
    if (!trace)
        return;
    if (trace->dropped > 0)
        gb_log(GB_LOG_WARNING, "the trace has gaps", GB_LOG_NUMBER("lines", trace->dropped));
    begin_line(trace, "end", "daemon", 'i', uv_hrtime(), 0);
    gb_write_format(&trace->block, ",\"s\":\"g\",\"args\":{\"dropped\":%" PRIu64 "}}\n]\n",
                    trace->dropped);
    hand_over(trace);
    atomic_store(&trace->stop, true);
    uv_sem_post(&trace->wake);
    uv_thread_join(&trace->thread);
    uv_sem_destroy(&trace->wake);
    gb_outlet_end(&trace->outlet);
    gb_writer_end(&trace->block);
    close(trace->fd);
    free(trace);
}

void gb_trace_session(struct gb_trace *trace, uint64_t session, int pid, const char *client)
{
    char name[320];

    if (!trace)
        return;
    snprintf(name, sizeof(name), "%s (session %" PRIu64 ", pid %d)", client ? client : "client",
             session, pid);
    name_line(trace, "thread_name", session, name);
}

void gb_trace_request(struct gb_trace *trace, uint64_t session, const char *method,
                      const char *result, uint64_t begun_ns, uint64_t ns, bool waited)
{
    if (!trace)
        return;
    if (!waited) {
        begin_line(trace, method, "request", 'X', begun_ns, session);
        write_time(trace, "dur", ns);
        gb_write_format(&trace->block, ",\"args\":{\"result\":\"%s\"}", result);
        end_line(trace);
        return;
    }
    /* Others of the session are served meanwhile, so it has a place of its own. */
    trace->next_id++;
    begin_line(trace, method, "wait", 'b', begun_ns, session);
    gb_write_format(&trace->block, ",\"id\":%" PRIu64, trace->next_id);
    end_line(trace);
    begin_line(trace, method, "wait", 'e', begun_ns + ns, session);
    gb_write_format(&trace->block,
                    ",\"id\":%" PRIu64 ",\"args\":{\"session\":%" PRIu64 ",\"result\":\"%s\"}",
                    trace->next_id, session, result);
    end_line(trace);
}

void gb_trace_move(struct gb_trace *trace, const char *what, const char *device, const char *tier,
                   uint64_t bytes, uint64_t begun_ns, uint64_t ns)
{
    if (!trace)
        return;
    trace->next_id++;
    begin_line(trace, what, "move", 'b', begun_ns, 0);
    gb_write_format(&trace->block,
                    ",\"id\":%" PRIu64
                    ",\"args\":{\"device\":\"%s\",\"tier\":\"%s\",\"bytes\":%" PRIu64 "}",
                    trace->next_id, device, tier, bytes);
    end_line(trace);
    begin_line(trace, what, "move", 'e', begun_ns + ns, 0);
    gb_write_format(&trace->block, ",\"id\":%" PRIu64, trace->next_id);
    end_line(trace);
}

void gb_trace_flush(struct gb_trace *trace)
{
    if (trace && trace->lines > 0 && uv_hrtime() - trace->flushed_ns >= FLUSH_NS)
        hand_over(trace);
}
