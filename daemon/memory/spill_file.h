/*
 * Files of the disk tier, in a directory that one daemon has for itself: one for each large copy,
 * and one for all small copies, the *pack*. A file number from GB_PACK_BASE on is a place in the
 * pack; everything below about a file holds for such a place, too.
 *
 * A file begins with a header, which is written last. It has the number of bytes that follow, their
 * checksum (XXH3, 64 bits), and the storage and the daemon that they belong to. Content that does
 * not match is refused, even if it is a whole file of another storage or of an earlier time: within
 * an instance each number is used for one storage, and a sealed storage's content never changes.
 * Where no journal gives storages numbers, each copy has one of its own.
 *
 *   0  "gpubufsp"   8  version, 32 bits   12  0, 32 bits
 *  16  bytes of content, 64 bits          24  XXH3 of the content, 64 bits
 *  32  that number, 64 bits               40  the file's, 64 bits
 *  48  the daemon's instance, 32 octets   80  XXH3 of octets 0 to 79, 64 bits
 *  88  zeros up to 4096, in the pack up to 96, where the content begins
 *
 * All little-endian. Functions on files may block, and run on any thread, one at a time for a file.
 */
#ifndef GB_SPILL_FILE_H
#define GB_SPILL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errors.h"

#define GB_SPILL_HEADER_BYTES 4096u
#define GB_PACK_HEADER_BYTES 96u
#define GB_PACK_BASE (UINT64_C(1) << 51)
#define GB_PACK_PAGE_BYTES 4096u          /* the unit in which the pack gives room back */
#define GB_PACK_BYTES (UINT64_C(1) << 40) /* of places; the pack is a sparse file */

struct gb_spill_dir;
struct gb_spill_file;

/* Takes the directory, which must exist and be writable. GPUBUF_E_SYSTEM, GPUBUF_E_BUSY (another
   daemon has it), GPUBUF_E_NO_MEMORY. */
int gb_spill_dir_open(const char *path, struct gb_spill_dir **dir, struct gb_error *error);
/* Whether the directory can be taken: 0, or as above. It is only taken for that moment. Unless
   `anew` some daemon must have had it before. */
int gb_spill_dir_try(const char *path, bool anew, struct gb_error *error);
/* Whether no daemon has had the directory before. */
bool gb_spill_dir_is_new(const struct gb_spill_dir *dir);
/* Leaves the directory as one that no daemon has had. */
void gb_spill_dir_leave(const struct gb_spill_dir *dir);
/* The descriptor of its lock, which stays the directory's. */
int gb_spill_dir_lock(const struct gb_spill_dir *dir);
/* Sets the instance that the files belong to: 32 octets. To be called before any file is created or
   opened. */
void gb_spill_dir_set_instance(struct gb_spill_dir *dir, const char *instance);
/* Lists the files that an earlier daemon left, but for the pack; the caller frees the array.
   GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_spill_dir_list(const struct gb_spill_dir *dir, uint64_t **ids, size_t *count,
                      struct gb_error *error);
void gb_spill_dir_close(struct gb_spill_dir *dir); /* NULL is fine */

/* Creates a file. Unless it is finished, its close removes it. */
int gb_spill_file_create(struct gb_spill_dir *dir, uint64_t id, uint64_t storage,
                         struct gb_spill_file **file, struct gb_error *error);
int gb_spill_file_write(struct gb_spill_file *file, const void *data, uint64_t bytes,
                        struct gb_error *error);
/* Writes the header, after all content: only now the file is valid. */
int gb_spill_file_finish(struct gb_spill_file *file, struct gb_error *error);

/* Opens an existing file, which must hold `bytes` of that storage. */
int gb_spill_file_open(struct gb_spill_dir *dir, uint64_t id, uint64_t storage, uint64_t bytes,
                       struct gb_spill_file **file, struct gb_error *error);
int gb_spill_file_read(struct gb_spill_file *file, void *data, uint64_t bytes,
                       struct gb_error *error);
/* Whether all content was read, and is what was written. */
int gb_spill_file_verify(struct gb_spill_file *file, struct gb_error *error);

void gb_spill_file_close(struct gb_spill_file *file); /* NULL is fine */
void gb_spill_file_remove(struct gb_spill_dir *dir, uint64_t id);
/* Gives the whole pages among `bytes` of the pack, which are free, back to the file system. */
void gb_spill_pack_free(const struct gb_spill_dir *dir, uint64_t id, uint64_t bytes);
/* Removes the pack, when nothing in it is needed any more. */
void gb_spill_pack_remove(const struct gb_spill_dir *dir);

#endif
