/*
 * Options of a program: those of its command line over keys of a configuration file. Every option
 * `--some-key VALUE` is the key `some-key = VALUE` of the file. A program describes its options in
 * a table, and the struct that is filled in is its own. For one thread, at the start.
 */
#ifndef GB_OPTION_H
#define GB_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"

enum gb_option_kind {
    GB_OPTION_OTHER, /* `set` reads and keeps the value */
    GB_OPTION_FILE, /* names a file of options, and sets a bool if it has a member; no key of one */
    GB_OPTION_FLAG, /* a bool, without an argument; no key of a file */
    GB_OPTION_TEXT, /* a char *, owned, not empty */
    GB_OPTION_LIST, /* char *[most + 1], owned, ended by NULL */
    GB_OPTION_COUNT,  /* an unsigned, from `least` to `most` */
    GB_OPTION_NUMBER, /* a uint64_t, from `least` to `most` */
};

/* Where an option is given. */
struct gb_option_place {
    const char *file; /* NULL: the command line */
    unsigned line;
};

struct gb_option {
    const char *name, *argument, *help;
    enum gb_option_kind kind;
    size_t member; /* its offset in the program's struct: `at`, below */
    uint64_t least, most;
    /* Looks at the value before it is kept; NULL: any will do. */
    int (*set)(void *at, const char *value, struct gb_error *error);
};

struct gb_program {
    const char *name;                /* "gpubufd" */
    const struct gb_option *options; /* ended by one without a name */
    /* The offset of a struct gb_option_place that `set` may look at, in the struct; 0: none. */
    size_t place;
};

/* The first call reads the file that the command line names, the second one the command line
   itself; the program may do something in between. On failure a sentence says where (option, or
   file and line), what was wrong and what was expected. */
int gb_option_read_file(const struct gb_program *program, void *settings, char **argv,
                        struct gb_error *error);
int gb_option_read_line(const struct gb_program *program, void *settings, char **argv,
                        struct gb_error *error);
void gb_option_free(const struct gb_program *program, void *settings); /* texts and lists */
void gb_option_help(const struct gb_program *program); /* to stdout, in 80 columns */

/* Frees *text and puts a copy of the value there. */
int gb_option_keep(char **text, const char *value, struct gb_error *error);

#endif
