/*
 * The journal: what a daemon must know to go on where its predecessor died, as checksummed records
 * in a memfd, which outlives it in a service manager's store. Pure file format: what records mean
 * is state.c's.
 *
 *   header   64 octets: magic, version, generation, instance, checksum
 *   record   length of the payload (4), type (4), checksum (8), payload, zeros up to a multiple of
 *   8
 *
 * All numbers are little-endian. A checksum covers the rest of its record and, as seed, where it
 * lies and the journal's instance, so that nothing is taken for a record that was not written
 * there. A record is appended by one write, so that only the last can be incomplete; it is dropped
 * then. A journal with something wrong before its end is refused as a whole: what lacks some of its
 * records might say of memory that it is what it is not. (Whether a whole record says what can be
 * is replay.h's.)
 *
 * A journal only grows. When it has become large a new one with the next generation is written from
 * the state as it is, and takes its place once the store has it: of several that are handed over
 * the one of the highest generation counts.
 *
 * The loop's thread owns it.
 */
#ifndef GB_JOURNAL_H
#define GB_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/errors.h"

#define GB_JOURNAL_VERSION 2
#define GB_JOURNAL_INSTANCE_BYTES 32      /* of hex, not terminated in the file */
#define GB_JOURNAL_RECORD_MAX (64u << 20) /* octets of payload */
#ifdef GB_FAILPOINTS
#define GB_JOURNAL_COMPACT_MIN (32u << 10) /* to see it written anew often */
#else
#define GB_JOURNAL_COMPACT_MIN (1u << 20) /* below it a journal is not large */
#endif

struct gb_journal {
    int fd; /* owned; -1: there is none */
    uint64_t generation;
    uint64_t bytes;
    uint64_t base_bytes; /* how many of them were there when it was whole: after compaction */
    uint64_t seed;
    char instance[GB_JOURNAL_INSTANCE_BYTES + 1];
};

#define GB_JOURNAL_NONE ((struct gb_journal){.fd = -1})

struct gb_journal_record {
    uint32_t type;
    const unsigned char *data; /* valid during the call only */
    size_t length;
};

/* An empty journal. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY; GPUBUF_E_INVALID: the instance has not the
   right number of hex digits. */
int gb_journal_new(struct gb_journal *journal, const char *instance, uint64_t generation,
                   struct gb_error *error);

/*
 * Only reads the header. GPUBUF_E_INVALID: that is no journal; GPUBUF_E_UNSUPPORTED: one of a later
 * version, and the sentence says what to do. The descriptor stays the caller's.
 */
int gb_journal_peek(int fd, uint64_t *generation, struct gb_error *error);

/*
 * Calls `each` for every record, in order, until it fails, and drops an incomplete end. `fd` is
 * taken over on success. Errors as above, and those of `each`; GPUBUF_E_INVALID also where a record
 * before the last is damaged.
 */
int gb_journal_open(struct gb_journal *journal, int fd,
                    int (*each)(const struct gb_journal_record *record, void *arg,
                                struct gb_error *error),
                    void *arg, struct gb_error *error);

/* Appends a record. On failure nothing was appended, and the journal is as it was. */
int gb_journal_append(struct gb_journal *journal, uint32_t type, const void *data, size_t length,
                      struct gb_error *error);

/* It has more than doubled since it was whole. To be asked now and then. */
bool gb_journal_is_large(const struct gb_journal *journal);
/* From here on it counts as whole. */
void gb_journal_mark_whole(struct gb_journal *journal);

/* Frees and closes. Idempotent. */
void gb_journal_end(struct gb_journal *journal);

#endif
