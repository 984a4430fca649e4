/* Memory that a device's mover is making or adopting, and the requests that wait for it. */
#ifndef GB_MAKING_H
#define GB_MAKING_H

#include "daemon/store/storage.h"

struct gb_placing;
struct gb_store;

struct gb_making_job; /* memory that a device is making, or adopting, on its mover's thread */

/* A request's part in such a job. Zeroed while it waits for none. */
struct gb_making {
    struct gb_making_job *job; /* under way, or done and its memory not yet taken */
    struct gb_segment *made;   /* for the request, and kept until its next try; NULL: none */
    int code;                  /* of a job that failed; 0: none has */
    struct gb_error error;
};

/* One memory to adopt. The descriptor (-1: none) is duplicated, not taken. */
struct gb_adoption {
    struct gb_handle handle;
    int fd;
};

/* Has the request wait for a job, for which no other waits. */
void gb_making_attach(struct gb_making *making, struct gb_making_job *job);
/* Ends the wait. A segment that is made later serves the next object of its domain. */
void gb_making_end(struct gb_making *making);
/* The request has been tried again, so the segment that was made for it is not kept any longer. */
void gb_making_tried(struct gb_making *making);
/* Whether the job is still under way. */
bool gb_making_busy(const struct gb_making *making);

/* Begins to make a segment for a domain on the device's mover; its bytes are charged at once.
   GB_PLACE_MAKING; GPUBUF_E_NO_MEMORY. */
int gb_making_begin(struct gb_placing *placing, enum gb_segment_kind kind, uint64_t bytes);
/* The bytes of another shared segment for a storage that the domain's segments have no room for. */
uint64_t gb_making_bytes(const struct gb_domain *domain, const struct gb_storage *storage);
/* Begins to make another shared segment ahead of need, after a storage got a place in one: if the
   device has a mover, and less than half the bytes of the domain's largest segment are free in all
   of them together. */
void gb_making_ahead(struct gb_store *store, const struct gb_domain *domain,
                     const struct gb_storage *storage);
/* Marks segments that are being made and that no request waits for, up to `bytes`, of one user
   (NULL: of all), to be given back once they are made. Returns their bytes. */
uint64_t gb_making_trim(struct gb_store *store, struct gb_device *device,
                        const struct gb_user *user, uint64_t bytes);
/* Begins to adopt memory on the device's mover. GB_PLACE_MAKING; GPUBUF_E_NO_MEMORY,
   GPUBUF_E_LIMIT. */
int gb_making_adopt(struct gb_placing *placing);
/* Has the device adopt each memory, all or none; the sentence of a failure names the handle. */
int gb_adopt_all(struct gb_device *device, const struct gb_adoption *adoptions, unsigned count,
                 struct gb_memory *memories, struct gb_error *error);
/* Gives the caller the memories that a finished job has adopted, as many as it has adoptions. */
void gb_making_move_memories(struct gb_making *making, struct gb_memory *memories);
/* Gives back memory that became no segment, on the mover's thread if the device has one. */
void gb_memory_discard(struct gb_device *device, const struct gb_memory *memory);
/* How many segments are being made or adopted for a user. */
uint64_t gb_making_count(const struct gb_store *store, const struct gb_user *user);
/* Whether a shared segment of the domain that can hold the bytes is being made. */
bool gb_making_comes(const struct gb_store *store, const struct gb_domain_key *key, uint64_t bytes);

#endif
