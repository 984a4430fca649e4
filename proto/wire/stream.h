/*
 * The pages of a stream. A stream is an array whose first axis is its slots; frames are written to
 * the slots, and the daemon is not asked for any of them. Each page has one writer, and the kernel
 * lets nobody else write it:
 *
 * - the *roster*, the daemon's: who takes part, and what each reader may hold;
 * - the *front*, the writer's: which frame is in which slot;
 * - a *claim* for each reader: what that reader holds and wants.
 *
 * Whatever is read from another's page may be anything at any time: readers of a page bound each
 * number that they use as an index. client/lib/base/ring.c has the algorithm, and the decision on
 * streams (docs/decisions) why it is right. A page has GB_STREAM_PAGE_BYTES and cannot shrink.
 *
 * The order of each word. A fence is sequentially consistent, and "f" below is the fence between
 * what one side stores and what it then loads of the other's:
 *
 *     word                    stored                               loaded
 *     frame, marked as out    relaxed, before the writer's f       acquire, after the reader's f
 *     frame, a number         release, after content, bytes, time  acquire, before the content
 *     held, a bit more        relaxed, before the reader's f       acquire, after the writer's f
 *     held, a bit less; done  release, after reading               acquire, before writing
 *     roster's writer, epoch  seq_cst, before the answer           acquire, after each f
 *     from                    release, after the claim held        acquire
 *     at, head, then bell     release                              acquire, bell before head
 *     asleep                  relaxed, before f; then looks again  relaxed, after bell or moved, f
 *     ready, done on a GPU    by the GPU, after a system barrier   acquire
 *     over                    release, then the bell is rung       acquire, before the last head
 */
#ifndef GB_STREAM_H
#define GB_STREAM_H

#include <stdint.h>

#define GB_STREAM_SLOTS 128u /* most slots: each is a bit of some words */
#define GB_STREAM_WORDS (GB_STREAM_SLOTS / 64)
#define GB_STREAM_READERS 64u /* most readers: each is a bit of one word */
#define GB_STREAM_PAGE_BYTES 16384u

/* A frame's number is its writer's, then its count among that writer's frames, from 1 on. */
#define GB_STREAM_COUNT_BITS 40
/* A number beside its slot, in one word. */
#define GB_STREAM_SLOT_BITS 7
#define GB_STREAM_WRITERS (1u << 17) /* most writers that a stream has in its life, less one */
/* Beside the number of the frame in a slot: it may be written anew, and is not to be claimed. */
#define GB_STREAM_OUT (UINT64_C(1) << 63)

struct gb_stream_roster {
    _Atomic uint64_t active; /* a bit for each reader that takes part */
    _Atomic uint32_t epoch;  /* grows whenever a reader joins, before that reader is answered */
    _Atomic uint32_t writer; /* the number of the last writer that has joined; 0: none has */
    _Atomic uint32_t over;   /* the number of the last writer that has ended */
    _Atomic uint8_t hold[GB_STREAM_READERS]; /* slots that the reader may hold at a time */
    _Atomic uint8_t lag[GB_STREAM_READERS];  /* newest frames that are kept for it */
};

struct gb_stream_slot {
    _Alignas(64) _Atomic uint64_t frame; /* 0: none yet */
    _Atomic uint64_t bytes, time_ns;     /* of that frame */
    /* On a GPU: low bits of `frame`, once its content is complete; less until then. Above that:
       the writer ended before. */
    _Atomic uint32_t ready;
};

struct gb_stream_front {
    _Alignas(64) _Atomic uint64_t head; /* the newest frame and its slot; 0: there is none */
    _Atomic uint32_t bell;              /* a futex: readers sleep on it. Low bits of that frame */
    _Atomic uint32_t asleep;            /* the writer sleeps on a reader's `moved` */
    _Alignas(
        64) _Atomic uint64_t at[GB_STREAM_SLOTS]; /* by the frame's low bits: it and its slot */
    struct gb_stream_slot slots[GB_STREAM_SLOTS];
};

struct gb_stream_claim {
    _Alignas(64) _Atomic uint64_t held[GB_STREAM_WORDS]; /* a bit for each slot that is read */
    _Atomic uint64_t from;   /* this frame and later ones are wanted, each; 0: the newest alone */
    _Atomic uint64_t frames; /* read so far, for those who look on */
    _Atomic uint64_t missed; /* likewise: not read, since they came too fast */
    _Atomic uint32_t asleep; /* a futex: it sleeps there, and on the writer's bell */
    _Atomic uint32_t waits;  /* asks the writer to wait for it */
    _Atomic uint32_t moved;  /* a futex: the writer sleeps on it */
    _Alignas(64) _Atomic uint32_t done[GB_STREAM_SLOTS]; /* on a GPU: low bits of the frame in the
                                       slot, once work there that reads it has ended */
};

_Static_assert(sizeof(struct gb_stream_front) <= GB_STREAM_PAGE_BYTES, "a front fits its page");
_Static_assert(sizeof(struct gb_stream_claim) <= GB_STREAM_PAGE_BYTES, "a claim fits its page");

#endif
