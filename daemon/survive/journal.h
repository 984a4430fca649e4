/*
 * The journal: all that a daemon needs to continue where its predecessor died, as checksummed
 * records in a memfd that the service manager keeps. This is the format of the file; state.c has
 * the meaning of the records.
 *
 * header   twice, 112 octets each: magic, version, octets of the header, generation, instance, the
 *          last record's subject, where that record ends, the next number of each kind, checksum
 * record   its subject, that of the record before it, checksum (8), payload, zeros up to a multiple
 *          of 8
 * subject  length of the payload (4), type (4), the number of the segment or storage (8)
 *
 * All numbers are little-endian. A checksum covers the rest of its record; its seed is the record's
 * place and the journal's instance, so that bytes that were not written there as a record are not
 * taken for one. A record is appended by one write, and then the header by another. So what follows
 * the end that the header has is whole, or the incomplete end that a kill leaves, which is dropped.
 *
 * Only the damaged record is lost: reading continues at the next whole one, which has the subject
 * of the lost one; or the header has it. The reader must know it, since an earlier record of the
 * same subject may be out of date about memory. If several neighbours were lost their subjects are
 * not known, and the reader must ignore all earlier records of storages. By the end that the header
 * has it is noticed that a journal was cut. The damage stays in the journal, so that the next
 * reader finds it, too. (replay.h checks the content of records.) No damage to records has a number
 * given twice, since the header has those that are next.
 *
 * A journal only grows. When it has become large, the state is written to a new one with the next
 * generation, which takes its place once the manager keeps it. If several are handed over the one
 * of the highest generation counts.
 *
 * The loop's thread owns it.
 */
#ifndef GB_JOURNAL_H
#define GB_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"

#define GB_JOURNAL_VERSION 7
#define GB_JOURNAL_INSTANCE_BYTES 32      /* of hex, not terminated in the file */
#define GB_JOURNAL_RECORD_MAX (64u << 20) /* octets of payload */
#ifdef GB_FAILPOINTS
#define GB_JOURNAL_COMPACT_MIN (32u << 10) /* tests see it written anew often */
#else
#define GB_JOURNAL_COMPACT_MIN (1u << 20) /* a smaller journal is never large */
#endif

/* The subject of a record. */
struct gb_journal_subject {
    uint32_t length, type;
    uint64_t number;
};

/* Of each kind of number the next one: none from it on was given. */
struct gb_journal_numbers {
    uint64_t segment, version, storage;
};

static inline void gb_raise_to(uint64_t *number, uint64_t to)
{
    if (to > *number)
        *number = to;
}

/* A mapped file. */
struct gb_journal_map {
    void *bytes; /* NULL: none is */
    size_t length;
};

struct gb_journal {
    int fd; /* owned; -1: there is none */
    struct gb_journal_subject last;
    struct gb_journal_numbers next; /* the owner raises them, and appends or counts */
    uint64_t generation;
    uint64_t bytes;
    uint64_t base_bytes; /* its size when it was opened, or had just been written anew */
    uint64_t seed;
    char instance[GB_JOURNAL_INSTANCE_BYTES + 1];
    struct gb_journal_map read; /* what gb_journal_open() has read; may be taken over */
};

#define GB_JOURNAL_NONE ((struct gb_journal){.fd = -1})

struct gb_journal_record {
    uint32_t type; /* lost: 0 if it is not known, since more than one was lost here */
    uint64_t number;
    const unsigned char *data; /* in what is mapped; NULL: the record was lost */
    size_t length;
};

/* Makes an empty journal. GPUBUF_E_SYSTEM; GPUBUF_E_INVALID: the instance has not the right number
   of hex digits. */
int gb_journal_new(struct gb_journal *journal, const char *instance, uint64_t generation,
                   struct gb_error *error);

/*
 * Reads the header only. GPUBUF_E_INVALID: it is no journal; GPUBUF_E_UNSUPPORTED: its version is
 * later than ours, and the sentence says what to do. The descriptor stays the caller's.
 */
int gb_journal_peek(int fd, uint64_t *generation, struct gb_error *error);

/*
 * Calls `each` for every record, lost ones too, in order, until it fails, and drops an incomplete
 * end. `fd` is taken over on success. Errors as above, and those of `each`.
 */
int gb_journal_open(struct gb_journal *journal, int fd,
                    int (*each)(const struct gb_journal_record *record, void *arg,
                                struct gb_error *error),
                    void *arg, struct gb_error *error);

/* Appends a record; its type is not 0. Writes the next numbers, too. On failure nothing was
   appended, and the journal is as it was. */
int gb_journal_append(struct gb_journal *journal, uint32_t type, uint64_t number, const void *data,
                      size_t length, struct gb_error *error);

/* Writes the next numbers alone. GPUBUF_E_SYSTEM. */
int gb_journal_count(struct gb_journal *journal, struct gb_error *error);

/* Whether it has more than doubled since it was opened or written anew. */
bool gb_journal_is_large(const struct gb_journal *journal);
/* Its present size is the base of that from now on. */
void gb_journal_mark_whole(struct gb_journal *journal);

/* Makes it no journal, for a reader that is given it later. It is not cut: it may be mapped. */
void gb_journal_spoil(struct gb_journal *journal);

void gb_journal_unmap(struct gb_journal_map *map);
/* Frees and closes. Idempotent. */
void gb_journal_end(struct gb_journal *journal);

#endif
