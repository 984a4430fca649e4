/*
 * Streams: who takes part in the frames of a live array, by the pages of proto/stream.h. The holder
 * of a lease joins, and takes part until the lease ends. A stream comes with the first that joins,
 * and goes with its object; before somebody has written, with its last reader. The daemon reads
 * no page of others, but to show it. The loop's.
 */
#ifndef GB_DAEMON_STREAM_H
#define GB_DAEMON_STREAM_H

#include "daemon/objects/lease.h"
#include "proto/stream.h"

/* One that takes part; its lease's. */
struct gb_part {
    struct gb_charge charge; /* of its holder's user */
    int fd;                  /* of its page; it may write it */
    int reader;              /* its number; -1: it is the writer */
    uint32_t since;          /* a reader: the roster's epoch then; a writer: its number */
};

struct gb_stream {
    struct gb_stream_roster *roster;
    struct gb_stream_front *front; /* of the last writer; NULL: there was none */
    int roster_fd, front_fd;       /* nobody can write the former */
    struct gb_charge charge;       /* of both, to the object's owner, once it was written */
    struct gb_lease *writer;       /* NULL: none */
    struct gb_lease *readers[GB_STREAM_READERS];
};

/* The lease joins the stream of its object, whose first axis has that many slots: one for writing
   as the writer. A reader may hold `hold` slots, and `lag` newest frames are kept for it.
   GPUBUF_E_BUSY: somebody else writes, or no slots are left; GPUBUF_E_LIMIT: of readers or
   descriptors; GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_stream_join(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                   struct gb_error *error);
/* Its lease ends: its page does not count any more, and the others are told. */
void gb_stream_leave(struct gb_lease *lease);
void gb_stream_free(struct gb_stream *stream); /* NULL is fine */
/* Appends ,"stream":{…}: of an object how it goes, of a lease what part it takes; nothing if it has
   none. Words of the pages of others are told as they are. */
void gb_stream_write(struct gb_writer *writer, const struct gb_stream *stream);
void gb_stream_write_part(struct gb_writer *writer, const struct gb_lease *lease);

#endif
