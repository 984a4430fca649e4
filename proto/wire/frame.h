/*
 * Lines out of a stream of bytes, and the queue of descriptors that came along. The frame owns
 * these descriptors until a caller takes them, and closes the rest, by `drop` where closing may
 * block. Otherwise pure: no I/O.
 *
 * The reader works on the caller's receive buffer in place and keeps only what is left of an
 * unfinished line, so that an idle connection holds no buffer.
 */
#ifndef GB_FRAME_H
#define GB_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/limits.h"

struct gb_frame {
    char *partial; /* bytes of earlier inputs, mostly the beginning of a line; NULL when none */
    size_t partial_length, partial_capacity;
    size_t partial_start;   /* the lines before this place were returned */
    size_t partial_scanned; /* from partial_start to here there is no newline */
    char *input;            /* what gb_frame_begin was given and is not yet consumed */
    size_t input_length;
    int *fds; /* FIFO, owned; NULL when empty */
    unsigned fd_count;
    void (*drop)(void *arg, int fd); /* closes a descriptor that nobody took; NULL: close() does */
    void *drop_arg;
};

/* A zeroed struct gb_frame is an empty frame. */

/* Offers received bytes, which must stay until gb_frame_finish. */
void gb_frame_begin(struct gb_frame *frame, char *bytes, size_t length);
/*
 * 1 and the next line without its newline (valid until the next call), 0 if no whole line is left,
 * GPUBUF_E_LIMIT if a line is too long, GPUBUF_E_NO_MEMORY. An empty line is a line. After an error
 * the stream cannot be read on.
 */
int gb_frame_next(struct gb_frame *frame, const char **line, size_t *length);
/*
 * Makes the line that gb_frame_next returned last the caller's: malloc'ed, or NULL if memory is
 * out. A long line is handed over rather than copied.
 */
char *gb_frame_keep_line(struct gb_frame *frame, const char *line, size_t length);
/* Whether gb_frame_next would return other than 0: a whole line is left, or a line that is too
   long. */
bool gb_frame_has_line(const struct gb_frame *frame);
/* Keeps what is left of the input, whole lines too, for later. 0 or GPUBUF_E_NO_MEMORY (then the
   stream cannot be read on). */
int gb_frame_finish(struct gb_frame *frame);
/* Whether the beginning of a line waits for its end. Ask after gb_frame_finish. */
bool gb_frame_is_partial(const struct gb_frame *frame);

/* Queues received descriptors; they are the frame's now, also on failure (then closed):
   GPUBUF_E_LIMIT past limits.h pending_fds, GPUBUF_E_NO_MEMORY. */
int gb_frame_push_fds(struct gb_frame *frame, const int *fds, unsigned count);
/* Takes the first `count` descriptors; they are the caller's. GPUBUF_E_PROTOCOL if there are fewer
   (nothing is taken). */
int gb_frame_take_fds(struct gb_frame *frame, int *fds, unsigned count);

/* Closes descriptors that nobody takes. */
void gb_frame_drop(const struct gb_frame *frame, const int *fds, unsigned count);
/* Frees and closes everything; `drop` stays. */
void gb_frame_end(struct gb_frame *frame);

#endif
