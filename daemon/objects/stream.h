/*
 * Streams: who takes part in the frames of a live array, by the pages of proto/wire/stream.h. The
 * holder of a lease joins, and takes part until the lease ends. A stream begins with the first that
 * joins. It ends with its object, or with its last reader if nobody has written. The daemon reads
 * no page of others, except to show it. Only the loop calls these.
 *
 * A stream outlives the daemon, since its members continue meanwhile: what a reader holds
 * must be kept from the writer. The service manager keeps each page, and the record of the object
 * says whose it is. A successor has the same pages, and each that took part takes part until its
 * process has ended, or is back and leaves (orphan_writer.h).
 */
#ifndef GB_DAEMON_STREAM_H
#define GB_DAEMON_STREAM_H

#include "daemon/objects/lease.h"
#include "proto/wire/stream.h"

#define GB_STREAM_PAGES_AT_ONCE 12u /* of others, in an answer */

/* A page that outlives the daemon. */
struct gb_stream_page {
    uint64_t id; /* the manager's name for it, of the segments' numbers; 0: there is no page */
    int fd;      /* of its memory; it may write it */
};

/* One that takes part; its lease's. */
struct gb_part {
    struct gb_charge charge;    /* of its holder's user */
    struct gb_stream_page page; /* a reader's; a writer's is the stream's `front_page` */
    int reader;                 /* its number; -1: it is the writer */
    uint32_t join_number;       /* a reader: the roster's epoch then; a writer: its number */
};

struct gb_stream {
    struct gb_stream_roster *roster; /* nobody else can write it */
    struct gb_stream_front *front;   /* of the last writer; NULL: there was none */
    struct gb_stream_page roster_page, front_page;
    struct gb_charge charge; /* of both, to the object's owner, once it was written */
    struct gb_lease *writer; /* NULL: none */
    struct gb_lease *readers[GB_STREAM_READERS];
    bool torn; /* a page was not handed over: what readers hold is not known, and nobody can join */
};

/* The lease joins the stream of its object, whose first axis has that many slots: one for writing
   as the writer. A reader may hold `hold` slots, and `lag` newest frames are kept for it.
   GPUBUF_E_BUSY: there is another writer, or no slots are left; GPUBUF_E_LIMIT: of readers or
   descriptors; GPUBUF_E_STALE: it is torn; GPUBUF_E_DEVICE, GPUBUF_E_NO_MEMORY. */
int gb_stream_join(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                   struct gb_error *error);
/* Its lease ends: its page does not count any more, and the others are told. */
void gb_stream_leave(struct gb_lease *lease);
void gb_stream_free(struct gb_store *store, struct gb_stream *stream); /* NULL is fine */
unsigned gb_stream_readers(const struct gb_stream *stream);            /* likewise: how many */

/* Makes the object's stream anew of an earlier daemon's pages, which are taken over in any case. If
   one is missing (its fd is -1) the stream is torn. If it is not, gb_stream_restore_part() restores
   each lease that took part, a reader's with the descriptor of its page. gb_stream_restored() is
   called last: nothing can fail any more, and the manager hears of pages again.
   GPUBUF_E_NO_MEMORY: the stream's shared memory has not changed. */
int gb_stream_restore(struct gb_object *object, const struct gb_stream_page *roster,
                      const struct gb_stream_page *front, bool torn);
int gb_stream_restore_part(struct gb_lease *lease, const struct gb_live_lease *former, int fd);
void gb_stream_restored(struct gb_object *object);

/* Appends ,"stream":{…}: of an object how it goes, of a lease what part it takes; nothing if it has
   none. Words of the pages of others are told as they are. */
void gb_stream_write(struct gb_writer *writer, const struct gb_stream *stream);
void gb_stream_write_part(struct gb_writer *writer, const struct gb_lease *lease);

#endif
