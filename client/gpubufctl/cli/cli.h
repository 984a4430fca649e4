/*
 * The frame of gpubufctl: what a command is, how its options are read, how failures are told.
 *
 * A command is a file, cmd_NAME.c, with a table of options and a function; main.c lists them all.
 * Help texts, option parsing and shell completion come from those tables. Results go to standard
 * output, one sentence about a failure to standard error. Single-threaded.
 */
#ifndef GB_CLI_H
#define GB_CLI_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "client/gpubufctl/output/end.h"
#include "gpubuf.h"

#define GB_CLI_OPTIONS_MAX 24 /* of one command, --help not counted */

/* How long an ordinary request may take before the daemon counts as stuck. */
#define GB_CLI_CALL_MS 60000

/*
 * An option. The name of its value tells its kind: TIME, SIZE, MODE, N and VERSION are read as
 * parse.h says, FORMAT, HOW, KIND, ORDER, TIER, WHAT and WHEN are one of `words`, and completion
 * offers files for FILE and PATH, every array's dtype for DTYPE.
 */
struct gb_cli_option {
    const char *name;     /* long form, without dashes; NULL ends a table */
    char letter;          /* short form; 0: none */
    const char *argument; /* what its value is called; NULL: a flag */
    const char *help;
    const char *words; /* values that completion offers, separated by spaces; or NULL */
};

/* A command's arguments after its options have been read. */
struct gb_cli_args {
    const char *option[GB_CLI_OPTIONS_MAX]; /* as the table counts; NULL: not given; flags: "" */
    int64_t number[GB_CLI_OPTIONS_MAX];     /* a TIME in ms, a SIZE, a MODE, an N, a VERSION; of one
                                               of `words` its place, from 1; 0: not given */
    int count;
    char **value;
};

struct gb_cli;

struct gb_cli_command {
    const char *name;
    const char *arguments; /* for the usage line, "NAME [FILE]", and how many there may be; "NAME…":
                              any number */
    const char *summary;   /* one line, for the list of commands */
    const char *details;   /* more for `CMD --help`; or NULL */
    const struct gb_cli_option *options; /* ended by a NULL name; or NULL */
    void (*run)(struct gb_cli *cli, struct gb_cli_args *args);
    const char *group; /* its heading in the list of commands, which those that follow share */
};

struct gb_cli {
    const struct gb_cli_command *commands; /* all of them, ended by a NULL name (main.c) */
    const struct gb_cli_option *options;   /* the options that every command takes */
    struct gb_cli_args globals; /* the values given for `options`, before or after the command */
    const char *socket;         /* NULL: the library's default */
    bool json;
    bool color;                           /* whether standard output takes colours */
    struct gpubuf_client *client;         /* connected by gb_cli_connect; ended by main */
    const struct gb_cli_command *command; /* the one that is run; NULL: none was named yet */
    const char *subject;                  /* its first argument; NULL: it has none */
    enum gb_status worst; /* of failures after which it went on; GB_STATUS_OK: there were none */
};

/* As gb_cli_fail(GB_STATUS_USAGE), and points at the command's --help. */
_Noreturn void gb_cli_usage(const struct gb_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* If the library has failed (`code` is negative), tells so and ends: `what` ("cannot open movies"),
   then the daemon's or the library's sentence in the words of the command line. */
void gb_cli_check(const struct gb_cli *cli, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same of an error. */
_Noreturn void gb_cli_fail_with(const struct gb_cli *cli, const struct gb_error *error,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Tells an error like that, and goes on; the status becomes cli->worst, unless one is already, or
   if there is no daemon any more. */
void gb_cli_note(struct gb_cli *cli, const struct gb_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The library's last failure, of that code, as an error. */
struct gb_error gb_cli_last(const struct gb_cli *cli, int code);

/* The command of this name, or of another name for it (list, info); NULL: there is none. */
const struct gb_cli_command *gb_cli_find(const struct gb_cli *cli, const char *name);

/* The place of a word in a list separated by spaces, from 1; 0: it is not there. */
int64_t gb_cli_place(const char *word, const char *words);

/* The name of a command's argument `i`, "NAME…" or "[FILE]", within its `arguments`; NULL: it takes
   fewer. One that may be given any number of times stands for all behind it, too. */
const char *gb_cli_argument(const struct gb_cli_command *command, int i, size_t *length);

/* Says that there is no such command, and which was probably meant. */
_Noreturn void gb_cli_no_command(const struct gb_cli *cli, const char *name);

/* Connects if that has not happened yet. */
void gb_cli_connect(struct gb_cli *cli);

/* Connects and calls a method. The result is to be freed with gpubuf_free. */
char *gb_cli_call(struct gb_cli *cli, const char *method, const char *params);

/* Calls a method, and takes over its parameters (NULL: it gets none). A code of the library;
   *answer is to be deleted, and NULL if the call failed or its result is no JSON. */
int gb_cli_request(struct gpubuf_client *client, const char *method, cJSON *params, cJSON **answer);

/* As gb_cli_request, but connects first, and ends if it fails. */
cJSON *gb_cli_ask(struct gb_cli *cli, const char *method, cJSON *params);

/* Asks `stat` about one version of a name, given by its number, or by its label; 0 and NULL: the
   current one. As gb_cli_ask; the answer has an object. */
cJSON *gb_cli_stat(struct gb_cli *cli, bool why, const char *name, int64_t version,
                   const char *label);
_Noreturn void gb_cli_no_sense(const char *method); /* the daemon's answer makes none */

/* Prints a text and ends it. */
void gb_cli_print(struct gb_writer *text);

/* Reads a command's options into *args and those that every command takes into cli->globals, and
   leaves the arguments in *args. False: --help was asked for. `argv[0]` is the command's name. */
bool gb_cli_read_args(struct gb_cli *cli, int argc, char **argv, struct gb_cli_args *args);

/* Reads the options before the command into cli->globals; *used counts the words consumed, the
   program included. */
bool gb_cli_read_globals(struct gb_cli *cli, int argc, char **argv, int *used);

/* Prints the help of cli->command, or of the whole program if that is NULL. */
void gb_cli_print_help(const struct gb_cli *cli);

void gb_cli_print_version(const struct gb_cli *cli);

/* Flushes standard output; a closed pipe is no failure. Another one ends the program with the
   status `worst`, or GB_STATUS_FAILED. */
void gb_cli_finish_output(enum gb_status worst);

#endif
