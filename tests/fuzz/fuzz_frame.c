/*
 * frame: a stream in arbitrary pieces, and descriptors pushed and taken at arbitrary times, against
 * a slow and obvious model.
 *
 * The input is a list of steps. A step is a byte that says what happens; offering bytes is followed
 * by their number and the bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpubuf.h"
#include "proto/frame.h"

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            __builtin_trap();                                                                      \
    } while (0)

/* All bytes offered so far, and all descriptors pushed so far; what was handed out is in front. */
struct model {
    char *bytes;
    size_t length, taken;
    int fds[4096];
    unsigned fd_count, fds_taken;
};

static void compare_line(struct gb_frame *frame, struct model *model, int *rc)
{
    const char *line = NULL;
    size_t length = 0;
    const char *start = model->bytes + model->taken;
    size_t left = model->length - model->taken;
    const char *newline = left > 0 ? memchr(start, '\n', left) : NULL;
    size_t expected = newline != NULL ? (size_t)(newline - start) : left;

    *rc = gb_frame_next(frame, &line, &length);
    if (expected >= GB_LIMIT(line_bytes)) {
        DEMAND(*rc == GPUBUF_E_LIMIT);
    } else if (expected == left) {
        DEMAND(*rc == 0);
    } else {
        DEMAND(*rc == 1 && length == expected && memcmp(line, start, length) == 0);
        model->taken += expected + 1;
    }
}

/* Offers `length` bytes and takes up to `lines` lines of all there are. Negative: the stream is
 * over. */
static int offer(struct gb_frame *frame, struct model *model, const uint8_t *bytes, size_t length,
                 unsigned lines)
{
    char *input = malloc(length > 0 ? length : 1);
    DEMAND(input != NULL);
    model->bytes = realloc(model->bytes, model->length + length + 1);
    DEMAND(model->bytes != NULL);
    if (length > 0) {
        memcpy(input, bytes, length);
        memcpy(model->bytes + model->length, bytes, length);
    }
    model->length += length;
    gb_frame_begin(frame, input, length);
    int rc = 1;
    while (rc > 0 && lines-- > 0)
        compare_line(frame, model, &rc);
    if (rc >= 0) {
        DEMAND(gb_frame_finish(frame) == 0);
        size_t left = model->length - model->taken;
        DEMAND(gb_frame_is_partial(frame) == (left > 0 && model->bytes[model->length - 1] != '\n'));
        DEMAND(left > 0 || frame->partial == NULL);
    }
    free(input);
    return rc;
}

static void push(struct gb_frame *frame, struct model *model, unsigned count)
{
    int fds[8];
    unsigned waiting = model->fd_count - model->fds_taken;
    for (unsigned i = 0; i < count; i++) {
        fds[i] = dup(STDERR_FILENO);
        DEMAND(fds[i] >= 0);
    }
    int rc = gb_frame_push_fds(frame, fds, count);
    if (waiting + count > GB_LIMIT(pending_fds)) {
        DEMAND(rc == GPUBUF_E_LIMIT);
        for (unsigned i = 0; i < count; i++)
            DEMAND(close(fds[i]) < 0);
        return;
    }
    DEMAND(rc == 0);
    memcpy(model->fds + model->fd_count, fds, count * sizeof(*fds));
    model->fd_count += count;
}

static void take(struct gb_frame *frame, struct model *model, unsigned count)
{
    int fds[8];
    int rc = gb_frame_take_fds(frame, fds, count);
    if (count > model->fd_count - model->fds_taken) {
        DEMAND(rc == GPUBUF_E_PROTOCOL);
        return;
    }
    DEMAND(rc == 0);
    for (unsigned i = 0; i < count; i++) {
        DEMAND(fds[i] == model->fds[model->fds_taken++]);
        DEMAND(close(fds[i]) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model model;
    /* A step of two bytes offers up to 128 KiB of filling; eight such reach the limit. */
    enum { FILLING = 1 << 17, MOST = 9 * FILLING };
    static uint8_t filling[FILLING];
    if (filling[0] == 0)
        memset(filling, 'f', sizeof(filling));
    model = (struct model){0};
    struct gb_frame frame = {0};
    size_t filled = 0;
    int rc = 0;
    for (size_t at = 0; rc >= 0 && at + 1 < size;) {
        unsigned step = data[at++], number = data[at++];
        unsigned lines = step >> 3 == 31 ? ~0u : step >> 3;
        switch (step & 7) {
        case 0:
            if (model.fd_count + 8 <= sizeof(model.fds) / sizeof(model.fds[0]))
                push(&frame, &model, number & 7);
            break;
        case 1:
            take(&frame, &model, number & 7);
            break;
        case 2:
            if (filled + FILLING <= MOST) {
                size_t length = (size_t)(number + 1) * (FILLING / 256);
                filled += length;
                rc = offer(&frame, &model, filling, length, lines);
            }
            break;
        default: {
            size_t length = number < size - at ? number : size - at;
            rc = offer(&frame, &model, data + at, length, lines);
            at += length;
        }
        }
    }
    gb_frame_end(&frame);
    for (unsigned i = model.fds_taken; i < model.fd_count; i++)
        DEMAND(close(model.fds[i]) < 0); /* the frame closed them */
    free(model.bytes);
    return 0;
}
