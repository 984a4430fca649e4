/*
 * frame: a stream in arbitrary pieces, and descriptors pushed and taken at arbitrary times, against
 * a slow and obvious model.
 *
 * The input is a list of steps. A step is a byte that says what happens, and one that says how
 * much; offering bytes is followed by the bytes. The limits are small, so that small inputs reach
 * them, and descriptors are numbers of our own.
 */
#include "demand.h"
#include "proto/base/limits.h"

enum { SMALL_line_bytes = 1024, SMALL_pending_fds = 12 };

static int close_number(int fd);

#undef GB_LIMIT
#define GB_LIMIT(name) SMALL_##name
#define close(fd) close_number(fd)
#include "proto/wire/frame.c"
#undef close

/* All bytes offered and all descriptors pushed so far; those that were handed out come first. */
struct model {
    char *bytes;
    size_t length, taken, capacity;
    bool open[4096]; /* by number */
    unsigned fd_count, fds_taken;
};

static struct model model;

static int close_number(int fd)
{
    DEMAND(fd >= 0 && (unsigned)fd < model.fd_count && model.open[fd]);
    model.open[fd] = false;
    return 0;
}

static void compare_line(struct gb_frame *frame, int *rc)
{
    const char *line = NULL;
    size_t length = 0;
    const char *start = model.bytes + model.taken;
    size_t left = model.length - model.taken;
    const char *newline = left > 0 ? memchr(start, '\n', left) : NULL;
    size_t expected = newline != NULL ? (size_t)(newline - start) : left;

    *rc = gb_frame_next(frame, &line, &length);
    if (expected >= GB_LIMIT(line_bytes)) {
        DEMAND(*rc == GPUBUF_E_LIMIT);
    } else if (expected == left) {
        DEMAND(*rc == 0);
    } else {
        DEMAND(*rc == 1 && length == expected && memcmp(line, start, length) == 0);
        model.taken += expected + 1;
    }
}

static void add_bytes(const uint8_t *bytes, size_t length)
{
    if (model.length + length >= model.capacity) {
        model.capacity = 2 * (model.length + length) + 256;
        model.bytes = realloc(model.bytes, model.capacity);
        DEMAND(model.bytes != NULL);
    }
    if (length > 0)
        memcpy(model.bytes + model.length, bytes, length);
    model.length += length;
}

/* Offers `length` bytes and takes up to `lines` lines of all there are. Negative: the stream is
 * over. */
static int offer(struct gb_frame *frame, const uint8_t *bytes, size_t length, unsigned lines)
{
    char *input = malloc(length > 0 ? length : 1); /* of the exact size */
    int rc = 1;

    DEMAND(input != NULL);
    if (length > 0)
        memcpy(input, bytes, length);
    add_bytes(bytes, length);
    gb_frame_begin(frame, input, length);
    while (rc > 0 && lines-- > 0)
        compare_line(frame, &rc);
    if (rc >= 0) {
        DEMAND(gb_frame_finish(frame) == 0);
        size_t left = model.length - model.taken;
        DEMAND(gb_frame_is_partial(frame) == (left > 0 && model.bytes[model.length - 1] != '\n'));
        DEMAND(left > 0 || frame->partial == NULL);
    }
    free(input);
    return rc;
}

static void push(struct gb_frame *frame, unsigned count)
{
    int fds[8];
    unsigned waiting = model.fd_count - model.fds_taken, first = model.fd_count;

    if (first + count > sizeof(model.open) / sizeof(model.open[0]))
        return;
    for (unsigned i = 0; i < count; i++) {
        fds[i] = (int)model.fd_count;
        model.open[model.fd_count++] = true;
    }
    int rc = gb_frame_push_fds(frame, fds, count);
    if (waiting + count > GB_LIMIT(pending_fds)) {
        DEMAND(rc == GPUBUF_E_LIMIT);
        while (model.fd_count > first)
            DEMAND(!model.open[--model.fd_count]);
        return;
    }
    DEMAND(rc == 0);
}

static void take(struct gb_frame *frame, unsigned count)
{
    int fds[8];
    int rc = gb_frame_take_fds(frame, fds, count);

    if (count > model.fd_count - model.fds_taken) {
        DEMAND(rc == GPUBUF_E_PROTOCOL);
        return;
    }
    DEMAND(rc == 0);
    for (unsigned i = 0; i < count; i++) {
        DEMAND(fds[i] == (int)model.fds_taken++);
        close_number(fds[i]);
    }
}

/* RELIABILITY.md: Hostile clients 20 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A step of two bytes offers up to 1 KiB of filling: half of what a line may have, and more. */
    static uint8_t filling[1024];
    struct gb_frame frame = {0};
    int rc = 0;

    memset(filling, 'f', sizeof(filling));
    model.length = model.taken = model.fd_count = model.fds_taken = 0;
    for (size_t at = 0; rc >= 0 && at + 1 < size;) {
        unsigned step = data[at++], number = data[at++];
        unsigned lines = step >> 3 == 31 ? ~0u : step >> 3;
        switch (step & 7) {
        case 0:
            push(&frame, number & 7);
            break;
        case 1:
            take(&frame, number & 7);
            break;
        case 2:
            rc = offer(&frame, filling, 4 * (size_t)number + 4, lines);
            break;
        default: {
            size_t length = number < size - at ? number : size - at;
            rc = offer(&frame, data + at, length, lines);
            at += length;
        }
        }
    }
    gb_frame_end(&frame);
    for (unsigned i = 0; i < model.fd_count; i++)
        DEMAND(!model.open[i]); /* the frame closed them */
    free(model.bytes);
    model.bytes = NULL;
    model.capacity = 0;
    return 0;
}
