#include "daemon/serve/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/config.h"
#include "daemon/memory/mover.h"

#define BLOCKS 512              /* the most that wait to be written: 16 MiB */
#define BLOCK_BYTES (32u << 10) /* are handed over at once; fewer after FLUSH_MS */
#define FLUSH_MS 200
#define NICENESS 10
#define PAGE_BYTES 4096u /* every line is shorter */

/* Lines that the mover's thread writes, in order. */
struct block {
    struct gb_job job;
    struct gb_trace *trace;
    char *text;
    size_t length;
};

struct gb_trace {
    struct gb_deadlines *timers; /* the loop's */
    struct gb_timer flush;
    int fd, pid;
    uint64_t start_ns, next_id;
    uint64_t lines, dropped; /* lines in the current block; dropped ones since the start */
    struct gb_writer block;
    struct gb_mover *mover;
    unsigned waiting; /* blocks that are yet to be written */
    /* The thread's. */
    char page[PAGE_BYTES];
    size_t filled;
    bool nice, failed; /* failed: the disk; nothing more is written */
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
 * If the daemon is killed, or a reader looks, during a write, the write may be cut between two
 * pages. So whole pages are written, filled up with spaces: no line lies across two of them.
 */
static void write_page(struct gb_trace *trace)
{
    size_t filled = trace->filled;

    trace->filled = 0;
    if (filled == 0 || trace->failed)
        return;
    memset(trace->page + filled, ' ', PAGE_BYTES - filled);
    trace->page[PAGE_BYTES - 1] = '\n';
    if (write_all(trace->fd, trace->page, PAGE_BYTES))
        return;
    gb_log(GB_LOG_ERROR, "the trace ends here", GB_LOG_TEXT("why", strerror(errno)));
    trace->failed = true;
}

static void write_line(struct gb_trace *trace, const char *line, size_t length)
{
    if (trace->filled + length > PAGE_BYTES - 1)
        write_page(trace);
    memcpy(trace->page + trace->filled, line, length);
    trace->filled += length;
}

static void write_block(struct gb_job *job)
{
    struct block *block = GB_CONTAINER(job, struct block, job);
    const char *line = block->text, *end = line + block->length, *newline;

    if (!block->trace->nice)
        setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread alone */
    block->trace->nice = true;
    while (line < end && (newline = memchr(line, '\n', (size_t)(end - line)))) {
        write_line(block->trace, line, (size_t)(newline + 1 - line));
        line = newline + 1;
    }
    write_page(block->trace);
}

/* ---- the loop's side ---- */

static void block_written(struct gb_job *job)
{
    struct block *block = GB_CONTAINER(job, struct block, job);

    block->trace->waiting--;
    free(block->text);
    free(block);
}

static void hand_over(struct gb_trace *trace)
{
    struct block *block = trace->waiting < BLOCKS ? calloc(1, sizeof(*block)) : NULL;
    size_t length;
    char *text = gb_writer_take(&trace->block, &length);

    gb_timer_cancel(trace->timers, &trace->flush);
    if (block && text) {
        *block = (struct block){{.work = write_block, .done = block_written}, trace, text, length};
        trace->waiting++;
        gb_mover_submit(trace->mover, &block->job);
    } else {
        trace->dropped += trace->lines;
        free(block);
        free(text);
    }
    trace->lines = 0;
}

static void on_flush(struct gb_timer *timer)
{
    hand_over(GB_CONTAINER(timer, struct gb_trace, flush));
}

/* Ends a line, with a comma, so that another may follow. */
static void end_line(struct gb_trace *trace)
{
    GB_WRITE_LITERAL(&trace->block, "},\n");
    trace->lines++;
    if (trace->block.length >= BLOCK_BYTES || trace->block.failed)
        hand_over(trace);
    else if (!trace->flush.deadline.place)
        gb_timer_set(trace->timers, &trace->flush, gb_now_ms() + FLUSH_MS);
}

static void write_time(struct gb_trace *trace, const char *member, uint64_t ns)
{
    gb_write_format(&trace->block, ",\"%s\":%" PRIu64 ".%03" PRIu64, member, ns / 1000, ns % 1000);
}

/* Writes {"name":…,"cat":…,"ph":…,"pid":…,"tid":…,"ts":…, without the closing brace. `name` and
   `category` must need no escapes. */
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

static void on_copied(void *arg, const struct gb_moved *moved)
{
    struct gb_trace *trace = arg;
    uint64_t now = uv_hrtime();

    trace->next_id++;
    begin_line(trace, moved->what, "move", 'b', now - moved->ns, 0);
    gb_write_format(&trace->block,
                    ",\"id\":%" PRIu64
                    ",\"args\":{\"device\":\"%s\",\"tier\":\"%s\",\"bytes\":%" PRIu64 "}",
                    trace->next_id, moved->device->id, gb_tier_name(moved->tier), moved->bytes);
    end_line(trace);
    begin_line(trace, moved->what, "move", 'e', now, 0);
    gb_write_format(&trace->block, ",\"id\":%" PRIu64, trace->next_id);
    end_line(trace);
}

int gb_trace_begin(struct gb_server *server, struct gb_error *error)
{
    const char *path = server->config->trace;
    struct gb_trace *trace;
    int fd;

    if (!path)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return gb_fail_errno(error, "cannot write the trace %s", path);
    trace = calloc(1, sizeof(*trace));
    if (!trace || gb_mover_new(server->loop, &trace->mover) < 0) {
        free(trace);
        close(fd);
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for the trace");
    }
    trace->timers = &server->timers;
    trace->flush.fire = on_flush;
    trace->fd = fd;
    trace->pid = getpid();
    trace->start_ns = uv_hrtime();
    gb_writer_init(&trace->block, 0);
    GB_WRITE_LITERAL(&trace->block, "[\n");
    name_line(trace, "process_name", 0, "gpubufd");
    name_line(trace, "thread_name", 0, "moves");
    hand_over(trace); /* so that the file can be opened from now on */
    server->spill.on_copied = on_copied;
    server->spill.on_copied_arg = trace;
    server->trace = trace;
    return 0;
}

void gb_trace_end(struct gb_server *server)
{
    struct gb_trace *trace = server->trace;

    if (!trace)
        return;
    server->trace = NULL;
    server->spill.on_copied = NULL;
    if (trace->dropped > 0)
        gb_log(GB_LOG_WARNING, "the trace has gaps", GB_LOG_NUMBER("lines", trace->dropped));
    begin_line(trace, "end", "daemon", 'i', uv_hrtime(), 0);
    gb_write_format(&trace->block, ",\"s\":\"g\",\"args\":{\"dropped\":%" PRIu64 "}}\n]\n",
                    trace->dropped);
    hand_over(trace);
    gb_mover_end(trace->mover);
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
    /* A wait may overlap other requests of the session, so it is a pair of events with an id. */
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
