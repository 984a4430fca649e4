/*
 * Files that commands read and write; what fails ends the program (end.h). Reading counts bytes for
 * the progress bar. Writing goes to a temporary file beside the target, which takes the target's
 * place only when all is written; the program removes it if it ends before, by a signal or else.
 */
#ifndef GB_FILE_H
#define GB_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/gpubufctl/output/term.h"
#include "gpubuf.h"

#define GB_FILE_UNKNOWN UINT64_MAX

struct gb_input {
    int fd;
    const char *name; /* for messages: the path, or "standard input" */
    uint64_t bytes; /* how many a regular file still had when it was opened; else GB_FILE_UNKNOWN */
    uint64_t done;
    struct gb_progress *progress; /* updated by every read; or NULL */
};

/* "-" is standard input. */
void gb_input_open(struct gb_input *input, const char *path);
void gb_input_close(struct gb_input *input);
/* Reads until `size` bytes are there or the file ends; returns how many. */
uint64_t gb_input_read(struct gb_input *input, void *buffer, uint64_t size);

/* Reads a range of a file into an object by the library, and moves the bar on from `before`.
   Returns a code of the library, whose sentence names the file. */
int gb_file_fill(struct gpubuf_object *object, enum gpubuf_which which,
                 const struct gpubuf_file_range *range, struct gb_progress *progress,
                 uint64_t before);

struct gb_output {
    FILE *file;
    char *path;      /* the target; NULL: standard output */
    char *temporary; /* NULL: written directly */
};

/* "-" is standard output. A file that is not regular is written directly. */
void gb_output_open(struct gb_output *output, const char *path);
/* Finishes: flushes and puts the file in place. A closed pipe on standard output is no failure. If
   the program ends before, the target stays as it was. */
void gb_output_commit(struct gb_output *output);

#endif
