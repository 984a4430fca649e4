/*
 * The frames of a stream: which slot a writer may write, and which frame a reader may read. It
 * knows the pages (proto/wire/stream.h) and neither sockets nor content.
 *
 * A reader claims a slot in its page, and then looks whether the frame is still in that slot. A
 * writer takes the frame out of the slot, and then looks whether anybody claims it. Between the two
 * steps of each is a fence, so one of them sees the other.
 *
 * Each struct is used by one thread at a time, and points to pages that its user maps.
 */
#ifndef GB_LIB_RING_H
#define GB_LIB_RING_H

#include <stdbool.h>

#include "proto/wire/stream.h"

/* Outcomes. */
enum gb_ring {
    GB_RING_NONE = -1,  /* no new frame; or no slot is free */
    GB_RING_PAGES = -2, /* to a writer: readers have joined; map their pages, then ask again.
                           To a reader: another writer has joined; map its front */
    GB_RING_OVER = -3,  /* no new frame, and the writer has ended */
    GB_RING_FULL = -4,  /* the reader holds as many frames as it may */
    GB_RING_LIES = -5,  /* the writer announces a frame that is in no slot */
};

struct gb_ring_writer {
    struct gb_stream_front *front;
    const struct gb_stream_roster *roster;
    const struct gb_stream_claim *claims[GB_STREAM_READERS]; /* NULL: none is mapped */
    unsigned slots;
    bool on_gpu;    /* readers say in `done`, and the writer's work in `ready`, what is finished */
    uint32_t epoch; /* of the roster when `claims` was complete */
    uint64_t head;  /* the newest frame */
    int newest;     /* its slot; -1: there is none */
    int taken;      /* the slot that is being written; -1: none */
    int victim;     /* the slot whose frame was taken out, to look for claims; -1: none */
    uint64_t frames[GB_STREAM_SLOTS]; /* in each slot; 0: none */
    uint64_t busy[GB_STREAM_WORDS];   /* slots that were claimed when it last looked */
    uint64_t late[GB_STREAM_READERS]; /* the `from` at which waiting for it timed out */
};

/* A frame, as a reader gets it. */
struct gb_ring_frame {
    uint64_t number;
    unsigned slot;
    uint64_t bytes, time_ns;
    uint64_t missed; /* frames between the last one and this one that it did not read */
};

struct gb_ring_reader {
    struct gb_stream_claim *claim;
    const struct gb_stream_roster *roster;
    const struct gb_stream_front *front; /* NULL: no writer has joined yet */
    unsigned slots, hold;
    bool each;
    unsigned run;      /* frames after which it tells the writer, at the latest */
    uint32_t writer;   /* whose front it is */
    uint64_t last;     /* the number of the last frame that was read */
    uint64_t reported; /* the one at which the writer was told */
    uint64_t spin_ns;  /* how long it looks before it sleeps */
};

/* `number` is the writer's in the roster. The front is new: all zeros. */
void gb_ring_write(struct gb_ring_writer *writer, struct gb_stream_front *front,
                   const struct gb_stream_roster *roster, unsigned slots, uint32_t number);
/* Finds a slot that nobody reads, and returns its number: it can be written until it is published.
   GB_RING_PAGES; GB_RING_NONE. Asked twice without a publish it returns the same slot. */
int gb_ring_acquire_slot(struct gb_ring_writer *writer);
/* On a GPU: whether the content of some frame is not complete, so that its slot is not free. */
bool gb_ring_works(const struct gb_ring_writer *writer);
/* The slot that was taken is the newest frame. Wakes readers that sleep. Returns its number. */
uint64_t gb_ring_publish(struct gb_ring_writer *writer, uint64_t bytes, uint64_t time_ns);
/* A reader that the next frame would make miss one, and that asks to be waited for; -1: none. */
int gb_ring_late(const struct gb_ring_writer *writer);
/* Waits until no reader is late, but at most that long. */
void gb_ring_wait_late(struct gb_ring_writer *writer, int64_t timeout_ns);
/* Readers that are late are not, until they move. */
void gb_ring_pass_late(struct gb_ring_writer *writer);

/* The reader sees no front yet, and wants the newest frames; `each`: all from now on. It asks the
   writer to wait, and tells it when `run` frames were read, or all that are there; 0: it does not
   ask. */
void gb_ring_join(struct gb_ring_reader *reader, struct gb_stream_claim *claim,
                  const struct gb_stream_roster *roster, unsigned slots, unsigned hold, bool each,
                  unsigned run);
/* Reads that writer's frames from now on. It still holds its slots. */
void gb_ring_follow(struct gb_ring_reader *reader, const struct gb_stream_front *front,
                    uint32_t writer);
/* Claims the next frame, and returns 0: the slot's content does not change until gb_ring_done().
   GB_RING_NONE, GB_RING_PAGES, GB_RING_OVER, GB_RING_FULL, GB_RING_LIES. */
int gb_ring_read(struct gb_ring_reader *reader, struct gb_ring_frame *frame);
/* On a GPU: 0 once the content of a frame that was read is complete; GB_RING_NONE: not yet;
   GB_RING_OVER: it never will be. */
int gb_ring_ready(const struct gb_ring_reader *reader, unsigned slot, uint64_t number);
/* Gives a slot back. */
void gb_ring_done(struct gb_ring_reader *reader, unsigned slot);
/* Waits until gb_ring_read() may return something else than it just did, and then returns true: a
   moment by looking, then asleep. At most that long; it may return early. After GB_RING_OVER: until
   another writer joins. */
bool gb_ring_wait(struct gb_ring_reader *reader, int64_t timeout_ns);

#endif
