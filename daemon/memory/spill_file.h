/*
 * Files of the disk tier, in a directory that one daemon has for itself: one for each large copy,
 * and one for all small ones, the *pack*. Numbers of files from GB_PACK_BASE on are places in the
 * pack, and what is said of a file holds for such a place, too.
 *
 * A file begins with a header, which is written last: how many bytes follow, their checksum (XXH3,
 * 64 bits), and whose they are. Content that does not match is not given out, be it a whole file of
 * another storage, or of an earlier time: numbers of storages are used once as long as the instance
 * is the same, and a sealed storage's content never changes.
 *
 *   0  "gpubufsp"   8  version, 32 bits   12  0, 32 bits
 *  16  bytes of content, 64 bits          24  XXH3 of the content, 64 bits
 *  32  the storage's number, 64 bits      40  the file's, 64 bits
 *  48  the daemon's instance, 32 octets   80  XXH3 of what is before, 64 bits
 *  88  zeros up to 4096, in the pack up to 96, where the content begins
 *
 * All little-endian. Functions on files may block, and run on any thread, one at a time for a file.
 */
#ifndef GB_SPILL_FILE_H
#define GB_SPILL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"

#define GB_SPILL_HEADER_BYTES 4096u
#define GB_PACK_HEADER_BYTES 96u
#define GB_PACK_BASE (UINT64_C(1) << 51)
#define GB_PACK_PAGE_BYTES 4096u          /* that a disk takes back */
#define GB_PACK_BYTES (UINT64_C(1) << 40) /* of places; the pack is a sparse file */

struct gb_spill_dir;
struct gb_spill_file;

/* Takes the directory, which must exist and be writable. GPUBUF_E_SYSTEM, GPUBUF_E_BUSY (another
   daemon has it), GPUBUF_E_NO_MEMORY. */
int gb_spill_dir_open(const char *path, struct gb_spill_dir **dir, struct gb_error *error);
/* The descriptor of its lock, which stays the directory's. */
int gb_spill_dir_lock(const struct gb_spill_dir *dir);
/* The owner of the files made from now on: 32 octets. None is created or opened before. */
void gb_spill_dir_set_instance(struct gb_spill_dir *dir, const char *instance);
/* The files that an earlier daemon left, but for the pack; the caller's to free. GPUBUF_E_SYSTEM,
   GPUBUF_E_NO_MEMORY. */
int gb_spill_dir_list(const struct gb_spill_dir *dir, uint64_t **ids, size_t *count,
                      struct gb_error *error);
void gb_spill_dir_close(struct gb_spill_dir *dir); /* NULL is fine */

/* A new file; of one that fails or is given up nothing is left after its close. */
int gb_spill_file_create(struct gb_spill_dir *dir, uint64_t id, uint64_t storage,
                         struct gb_spill_file **file, struct gb_error *error);
int gb_spill_file_write(struct gb_spill_file *file, const void *data, uint64_t bytes,
                        struct gb_error *error);
/* All is written: only now the file is one. */
int gb_spill_file_finish(struct gb_spill_file *file, struct gb_error *error);

/* An existing one, which has to hold `bytes` of that storage. */
int gb_spill_file_open(struct gb_spill_dir *dir, uint64_t id, uint64_t storage, uint64_t bytes,
                       struct gb_spill_file **file, struct gb_error *error);
int gb_spill_file_read(struct gb_spill_file *file, void *data, uint64_t bytes,
                       struct gb_error *error);
/* Whether all that was read is what was written. */
int gb_spill_file_verify(struct gb_spill_file *file, struct gb_error *error);

void gb_spill_file_close(struct gb_spill_file *file); /* NULL is fine */
void gb_spill_file_remove(struct gb_spill_dir *dir, uint64_t id);
/* Gives the disk back the whole pages among `bytes` of the pack, which nobody uses. */
void gb_spill_pack_free(const struct gb_spill_dir *dir, uint64_t id, uint64_t bytes);
/* Nothing in the pack is needed any more. */
void gb_spill_pack_remove(const struct gb_spill_dir *dir);

#endif
