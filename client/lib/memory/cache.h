/*
 * The import cache: which segments are mapped in this process, and which of them each session has.
 *
 * A *mapping* belongs to the process: keyed (instance, segment, access), counted, shared by all
 * clients, guarded by a mutex of its own. Memory of a GPU that the process may write has one
 * mapping: readers in the process are given that one too, so that both have one pointer. An
 * *import* belongs to one session, whose account at the daemon it mirrors: the daemon sends the
 * handle of a segment once, and counts the segment as mapped by the session until the session sends
 * `unmap`. An import that no lease uses is idle. Idle imports are kept for later opens, within
 * bounds; the least recently used is dropped first.
 *
 * The functions on `struct gb_imports` are called with the client's lock held.
 */
#ifndef GB_LIB_CACHE_H
#define GB_LIB_CACHE_H

#include <stddef.h>

#include "client/lib/memory/import.h"
#include "proto/base/limits.h"

#define GB_INSTANCE_BYTES 64 /* of an instance's hex string, NUL included */

struct gb_mapped; /* one segment, mapped in this process with one access */

void *gb_mapped_address(const struct gb_mapped *mapping);
uint64_t gb_mapped_bytes(const struct gb_mapped *mapping);
const struct gb_imported *gb_mapped_memory(const struct gb_mapped *mapping);
/* NULL: it is host memory. */
struct gb_gpu *gb_mapped_gpu(const struct gb_mapped *mapping);
/* See gb_import_write. Needs no lock as long as a lease uses the import. */
int gb_mapped_write(const struct gb_mapped *mapping, uint64_t offset, const void *from,
                    uint64_t bytes, struct gb_error *error);

/*
 * Keeps sealed memory from being written here: bytes `from` to `to`, rounded to the whole pages
 * within, of a writable mapping; on a GPU all of the mapping or nothing. True: they are guarded
 * until gb_mapped_unguard with the same range. Less than 64 KiB are not guarded, nor is a mapping
 * with a stray. There are 4096 guards at most: each costs the process up to two mappings, and it
 * may have some 65 000.
 */
bool gb_mapped_guard(struct gb_mapped *mapping, uint64_t from, uint64_t to);
void gb_mapped_unguard(struct gb_mapped *mapping, uint64_t from, uint64_t to);
/* Makes the bytes writable, whatever was guarded there: they are a new object's. */
void gb_mapped_open(struct gb_mapped *mapping, uint64_t from, uint64_t to);
/* Counts a stray more (1) or less (-1). A stray is an object that was lost with its connection
   before it was sealed. Its program may not know, and may write to memory that is another object's
   by now. Such a write must not meet a guard. */
void gb_mapped_stray(struct gb_mapped *mapping, int more);
/* Counts a lease for writing live memory more (1) or less (-1). */
void gb_mapped_writer(struct gb_mapped *mapping, int more);
/* Such a lease, which was counted, is lost: the bytes may be another process's to write. Makes the
   whole pages within them read-only; all of the mapping if no such lease is left in this process.
   On a GPU it does nothing. */
void gb_mapped_lose(struct gb_mapped *mapping, uint64_t from, uint64_t to);
/* Registers host memory with the driver (gb_cuda_register) once, however often it is asked for; the
   last unpin ends that. One lock of the caller's is held for all pins of the process, and a lease
   uses the import. */
int gb_mapped_pin(struct gb_mapped *mapping, struct gb_error *error);
void gb_mapped_unpin(struct gb_mapped *mapping);
/* See gb_import_finish. */
int gb_mapped_finish(struct gb_mapped *mapping, struct gb_error *error);

/* Children of fork will not have host memory: the daemon could not tell when they stop writing. */
void gb_mapped_keep_from_children(struct gb_mapped *mapping);

struct gb_import {
    struct gb_import *chain;         /* in its bucket */
    struct gb_import *newer, *older; /* among the idle ones */
    uint64_t segment;
    struct gb_mapped *mappings[2]; /* for reading, for writing; each may be NULL */
    size_t leases;                 /* that use it */
    bool retired;                  /* the daemon wants it back: drop it when idle */
    bool idle;
    bool counted;  /* while resuming: the daemon counts it for the new session */
    bool detached; /* of a session that is over: in no table, and freed with its last use */
};

struct gb_imports {
    struct gb_import **buckets;
    size_t bucket_count, count;
    struct gb_import *newest, *oldest; /* the idle ones */
    size_t idle_count;
    uint64_t idle_bytes, idle_bytes_max;
    size_t idle_retired; /* how many of the idle ones are to be dropped */
    size_t holds;        /* while there are any, nothing is dropped */
    uint64_t drops;      /* how many imports have ever been dropped */
    uint64_t *unmap;     /* segments to tell the daemon of */
    size_t unmap_count, unmap_capacity;
};

/* A zeroed struct with `idle_bytes_max` set is empty. Ending it expects that no lease is left. */
void gb_imports_end(struct gb_imports *imports);

/* Makes sure that `more` imports can be taken and dropped without more memory. */
int gb_imports_reserve(struct gb_imports *imports, size_t more);

/*
 * Takes in a segment of a reply, and maps it unless the process has done so. The import is idle at
 * first. The descriptor stays the caller's. On failure the segment is on the list to unmap, since
 * the daemon believes that this session has it. Errors of import.h, and GPUBUF_E_PROTOCOL if
 * another segment has that number.
 */
int gb_imports_map_segment(struct gb_imports *imports, const char *instance,
                           const struct gb_segment_info *segment, int fd, struct gb_error *error);

/* A read-only mapping of host memory that the session may write, made if there is none. NULL: it
   cannot be made. */
struct gb_mapped *gb_imports_for_reading(struct gb_imports *imports, const char *instance,
                                         struct gb_import *import);

/* The session's import of a segment; NULL if it has none. */
struct gb_import *gb_imports_find(const struct gb_imports *imports, uint64_t segment);

/* A lease begins and ends to use an import. */
void gb_imports_use(struct gb_imports *imports, struct gb_import *import);
void gb_imports_unuse(struct gb_imports *imports, struct gb_import *import);

/* The daemon asks for a segment back. */
void gb_imports_retire(struct gb_imports *imports, uint64_t segment);

/* Drops idle imports past the bounds, and those that the daemon wants back. */
void gb_imports_trim(struct gb_imports *imports);

/* No import is dropped between a hold and its end. A request holds the imports when it is sent
   again, since a segment that its first reply relied on had been dropped meanwhile. */
void gb_imports_hold(struct gb_imports *imports);
void gb_imports_unhold(struct gb_imports *imports);

/* Drops all idle imports without telling the daemon: the session is over. */
void gb_imports_abandon(struct gb_imports *imports);

/*
 * A new session takes the place of the old one. Imports that are `counted` stay, and the mark is
 * cleared. Of the others, idle ones are dropped, and those in use are detached. With `tell` the
 * dropped ones are reported to the daemon, since it may count them after all.
 */
void gb_imports_resume(struct gb_imports *imports, bool tell);

/* For pthread_atfork: the cache's lock is held across a fork so that the child finds it whole. */
void gb_cache_before_fork(void);
void gb_cache_after_fork(void);
/* In its place in the child: forgets the mappings that it does not have. */
void gb_cache_in_child(void);

#endif
