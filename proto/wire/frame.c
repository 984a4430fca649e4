#include "proto/wire/frame.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpubuf.h"

static void drop_partial(struct gb_frame *frame)
{
    free(frame->partial);
    frame->partial = NULL;
    frame->partial_length = frame->partial_capacity = 0;
    frame->partial_start = frame->partial_scanned = 0;
}

/* Moves `length` bytes from the front of the input to the end of `partial`. */
static int keep_input(struct gb_frame *frame, size_t length)
{
    if (frame->partial && frame->partial_start > 0) {
        frame->partial_length -= frame->partial_start;
        frame->partial_scanned -= frame->partial_start;
        memmove(frame->partial, frame->partial + frame->partial_start, frame->partial_length);
        frame->partial_start = 0;
    }
    size_t needed = frame->partial_length + length;
    if (!frame->partial || needed > frame->partial_capacity) {
        size_t capacity = frame->partial_capacity < 256 ? 256 : frame->partial_capacity;
        while (capacity < needed)
            capacity *= capacity < GB_LONG_BYTES || capacity >= GB_LIMIT(line_bytes) ? 2 : 16;
        char *partial = realloc(frame->partial, capacity);
        if (!partial)
            return GPUBUF_E_NO_MEMORY;
        frame->partial = partial;
        frame->partial_capacity = capacity;
    }
    memcpy(frame->partial + frame->partial_length, frame->input, length);
    frame->partial_length = needed;
    frame->input += length;
    frame->input_length -= length;
    return 0;
}

void gb_frame_begin(struct gb_frame *frame, char *bytes, size_t length)
{
    frame->input = bytes;
    frame->input_length = length;
}

/* Hands out the line that ends with the newline at `newline` in `partial`. */
static int next_in_partial(struct gb_frame *frame, const char *newline, const char **line,
                           size_t *length)
{
    const char *start = frame->partial + frame->partial_start;

    if ((size_t)(newline - start) >= GB_LIMIT(line_bytes))
        return GPUBUF_E_LIMIT;
    *line = start;
    *length = (size_t)(newline - start);
    frame->partial_start = frame->partial_scanned = (size_t)(newline + 1 - frame->partial);
    return 1;
}

int gb_frame_next(struct gb_frame *frame, const char **line, size_t *length)
{
    if (frame->partial) {
        const char *newline = memchr(frame->partial + frame->partial_scanned, '\n',
                                     frame->partial_length - frame->partial_scanned);
        if (newline)
            return next_in_partial(frame, newline, line, length);
        frame->partial_scanned = frame->partial_length;
        if (frame->partial_start == frame->partial_length)
            drop_partial(frame);
    }

    size_t kept = frame->partial_length - frame->partial_start;
    const char *newline =
        frame->input_length > 0 ? memchr(frame->input, '\n', frame->input_length) : NULL;
    size_t fresh = newline ? (size_t)(newline - frame->input) : frame->input_length;
    if (kept + fresh >= GB_LIMIT(line_bytes))
        return GPUBUF_E_LIMIT;
    if (!newline)
        return 0;

    if (kept > 0) {
        int r = keep_input(frame, fresh + 1);
        if (r < 0)
            return r;
        return next_in_partial(frame, frame->partial + frame->partial_length - 1, line, length);
    }
    *line = frame->input;
    *length = fresh;
    frame->input += fresh + 1;
    frame->input_length -= fresh + 1;
    return 1;
}

char *gb_frame_keep_line(struct gb_frame *frame, const char *line, size_t length)
{
    size_t rest = frame->partial_length - frame->partial_start;
    char *kept = line == frame->partial && length >= GB_LONG_BYTES / 4 ? frame->partial : NULL;
    char *copy = malloc(kept ? rest + 1 : length + 1);

    if (!copy)
        return NULL;
    if (!kept) {
        memcpy(copy, line, length);
        return copy;
    }
    memcpy(copy, frame->partial + frame->partial_start, rest);
    frame->partial = copy;
    frame->partial_length = rest;
    frame->partial_capacity = rest + 1;
    frame->partial_start = frame->partial_scanned = 0;
    if (rest == 0)
        drop_partial(frame);
    return kept;
}

bool gb_frame_has_line(const struct gb_frame *frame)
{
    size_t kept = frame->partial_length - frame->partial_start;

    if (frame->partial && memchr(frame->partial + frame->partial_scanned, '\n',
                                 frame->partial_length - frame->partial_scanned))
        return true;
    if (frame->input_length == 0)
        return false;
    return kept + frame->input_length >= GB_LIMIT(line_bytes) ||
           memchr(frame->input, '\n', frame->input_length);
}

int gb_frame_finish(struct gb_frame *frame)
{
    int r = 0;

    if (frame->partial && frame->partial_start == frame->partial_length)
        drop_partial(frame);
    if (frame->input_length > 0)
        r = keep_input(frame, frame->input_length);
    frame->input = NULL;
    frame->input_length = 0;
    return r;
}

bool gb_frame_is_partial(const struct gb_frame *frame)
{
    return frame->partial_start < frame->partial_length &&
           frame->partial[frame->partial_length - 1] != '\n';
}

void gb_frame_drop(const struct gb_frame *frame, const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (frame->drop)
            frame->drop(frame->drop_arg, fds[i]);
        else
            close(fds[i]);
}

int gb_frame_push_fds(struct gb_frame *frame, const int *fds, unsigned count)
{
    if (count == 0)
        return 0;
    if (count > GB_LIMIT(pending_fds) - frame->fd_count) {
        gb_frame_drop(frame, fds, count);
        return GPUBUF_E_LIMIT;
    }
    int *all = realloc(frame->fds, (frame->fd_count + count) * sizeof(*all));
    if (!all) {
        gb_frame_drop(frame, fds, count);
        return GPUBUF_E_NO_MEMORY;
    }
    memcpy(all + frame->fd_count, fds, count * sizeof(*all));
    frame->fds = all;
    frame->fd_count += count;
    return 0;
}

int gb_frame_take_fds(struct gb_frame *frame, int *fds, unsigned count)
{
    if (count == 0)
        return 0;
    if (count > frame->fd_count)
        return GPUBUF_E_PROTOCOL;
    memcpy(fds, frame->fds, count * sizeof(*fds));
    frame->fd_count -= count;
    if (frame->fd_count == 0) {
        free(frame->fds);
        frame->fds = NULL;
    } else {
        memmove(frame->fds, frame->fds + count, frame->fd_count * sizeof(*fds));
    }
    return 0;
}

void gb_frame_end(struct gb_frame *frame)
{
    free(frame->partial);
    gb_frame_drop(frame, frame->fds, frame->fd_count);
    free(frame->fds);
    *frame = (struct gb_frame){.drop = frame->drop, .drop_arg = frame->drop_arg};
}
