/*
 * The payloads of the journal's records: written here, read by replay.c. Numbers are little-endian,
 * texts have their length before them. The subject of a record is in its head (journal.h).
 */
#ifndef GB_RECORD_H
#define GB_RECORD_H

#include "daemon/objects/registry.h"
#include "proto/wire/json.h"

enum gb_state_record {
    GB_RECORD_SEGMENT = 2,
    GB_RECORD_SEGMENT_FREED = 3,
    GB_RECORD_STORAGE = 4, /* with its objects; replaces the storage's earlier record */
    GB_RECORD_STORAGE_FREED = 5,
    /* As STORAGE, of a storage that ends with the daemon: its named objects, without layouts. */
    GB_RECORD_FLEETING = 6,
};

void gb_record_segment(struct gb_writer *writer, const struct gb_segment *segment);
/* Whether a successor must know of the storage. */
bool gb_record_is_needed(const struct gb_storage *storage);
/* Writes the storage with its objects; returns the type of its record, STORAGE or FLEETING. */
uint32_t gb_record_storage(struct gb_writer *writer, const struct gb_storage *storage,
                           uint64_t now_ms);

#endif
