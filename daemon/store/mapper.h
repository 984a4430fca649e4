/* Which session maps which segment, and how. */
#ifndef GB_MAPPER_H
#define GB_MAPPER_H

#include "daemon/base/hash.h"
#include "proto/base/list.h"

struct gb_device;
struct gb_segment;
struct gb_store;

/* Someone who maps segments: a session. Zeroed at first, but for the id. */
struct gb_mapper {
    uint64_t id;
    struct gb_link mappings;
    uint64_t bytes; /* of the segments that it maps */
};

/* Access to a segment; each includes those before it. */
enum gb_access { GB_ACCESS_NONE, GB_ACCESS_READ, GB_ACCESS_WRITE };

/* The account that a mapper was given a segment's handle. */
struct gb_mapping {
    struct gb_hash_link link; /* by (mapper, segment) */
    struct gb_link of_mapper, of_segment;
    struct gb_mapper *mapper;
    struct gb_segment *segment;
    enum gb_access access; /* the widest that it was given */
};

/* Notes that the mapper is given the segment with that access. GPUBUF_E_NO_MEMORY. */
int gb_mapper_add(struct gb_store *store, struct gb_mapper *mapper, struct gb_segment *segment,
                  enum gb_access access);
struct gb_mapping *gb_mapper_find(const struct gb_store *store, const struct gb_mapper *mapper,
                                  uint64_t segment);
/* The mapper has unmapped the segment. If it is retiring and nobody else maps it, it is destroyed.
 */
void gb_mapping_end(struct gb_store *store, struct gb_mapping *mapping);
/* Ends at most `most` of the mapper's mappings; returns how many. */
unsigned gb_mapper_end_some(struct gb_store *store, struct gb_mapper *mapper, unsigned most);

/* Asks the sessions that map the segment to unmap it, once. After `unmap_ms` they are overdue. */
void gb_segment_ask(struct gb_store *store, struct gb_segment *segment, uint64_t now_ms);
/* Calls `overdue` for mappers that were asked `unmap_ms` ago to unmap a segment of the device and
   have not, if a request has lacked room since. Returns when to call it again; UINT64_MAX: not
   before a mapper is asked. */
uint64_t gb_mappers_end_overdue(struct gb_store *store, struct gb_device *device, uint64_t now_ms);

#endif
