/* The parts of a reply: segments with their descriptors, a lease on an object. */
#ifndef GB_REPLY_H
#define GB_REPLY_H

#include "daemon/methods/call.h"

/* The segments that a reply brings; their descriptors are in the call. */
struct gb_segments {
    struct {
        const struct gb_segment *segment;
        enum gb_access access;
        int fd_index;       /* -1: the handle is not a descriptor */
        enum gb_access had; /* the session's access before */
    } items[GB_LIMIT(fds)];
    unsigned count;
};

/*
 * Adds the storage's segments to the reply: those that the session was not given before (`all`:
 * every one). 0; 1 if they do not all fit in one message; a negative code with the call's error
 * set. Unless it returns 0 nothing has changed.
 */
int gb_segments_add(struct gb_call *call, struct gb_segments *segments,
                    const struct gb_storage *storage, enum gb_access access, bool all);
/* Takes the last ones out of the reply again, down to `count`. */
void gb_segments_forget(struct gb_call *call, struct gb_segments *segments, unsigned count);
/* Writes "segments":[…]. */
void gb_segments_write(struct gb_writer *writer, const struct gb_segments *segments);
/* Writes "session":…,"pid":…,"uid":…,"client":…. */
void gb_holder_write(struct gb_writer *writer, const struct gb_holder *holder);
/* Writes "lease":…,"session":…, …: a lease with its holder, for other sessions. */
void gb_lease_write_holder(struct gb_writer *writer, const struct gb_lease *lease, uint64_t now);
/* Writes "lease":…,"object":{…}, for its holder. `brief`: only the members of the object that a
   client needs to map it. */
void gb_lease_write(struct gb_writer *writer, const struct gb_lease *lease, bool brief);
/* Writes the whole result that grants one lease. */
int gb_call_grant(struct gb_call *call, const struct gb_lease *lease, bool brief,
                  const struct gb_segments *segments);

#endif
