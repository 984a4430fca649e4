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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpubuf.h"
#include "proto/errors.h"
#include "proto/json.h"

/* Exit statuses; gpubufctl(1) documents them. */
enum gb_status {
    GB_STATUS_OK = 0,
    GB_STATUS_FAILED = 1,
    GB_STATUS_USAGE = 2,
    GB_STATUS_NO_DAEMON = 3,
    GB_STATUS_TIMEOUT = 4,
};

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
    const struct gb_cli_option *options;                      /* ended by a NULL name; or NULL */
    int (*run)(struct gb_cli *cli, struct gb_cli_args *args); /* returns an exit status */
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
};

/* From now on failures are told as {"error":{"kind":…,"message":…}}, one line each. */
void gb_cli_json_errors(bool json);

/* Prints "gpubufctl: " and the sentence on standard error, control characters escaped; returns
   `status`. */
int gb_cli_fail(enum gb_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As gb_cli_fail(GB_STATUS_USAGE), and points at the command's --help. */
int gb_cli_usage(const struct gb_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Tells a failure of the library: `what` ("cannot open movies"), then the daemon's or the library's
   sentence in the words of the command line. Returns the status that fits `code`. */
int gb_cli_error(const struct gb_cli *cli, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As gb_cli_error, for a failure that is in `error`. */
int gb_cli_error_of(const struct gb_cli *cli, const struct gb_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tells a gb_error as it is; returns the status that fits its code. */
int gb_cli_tell(const struct gb_error *error);

/* The command of this name, or of another name for it (list, info); NULL: there is none. */
const struct gb_cli_command *gb_cli_find(const struct gb_cli *cli, const char *name);

/* The place of a word in a list separated by spaces, from 1; 0: it is not there. */
int64_t gb_cli_place(const char *word, const char *words);

/* The name of a command's argument `i`, "NAME…" or "[FILE]", within its `arguments`; NULL: it takes
   fewer. One that may be given any number of times stands for all behind it, too. */
const char *gb_cli_argument(const struct gb_cli_command *command, int i, size_t *length);

/* Says that there is no such command, and which was probably meant. Returns a status. */
int gb_cli_no_command(const struct gb_cli *cli, const char *name);

/* Connects if that has not happened yet. 0, or a status (the failure has been told). */
int gb_cli_connect(struct gb_cli *cli);

/* Connects and calls a method. 0 and *result to be freed with gpubuf_free, or a status. */
int gb_cli_call(struct gb_cli *cli, const char *method, const char *params, char **result);

/* Calls a method, and takes over its parameters (NULL: it gets none). A code of the library;
   *answer is to be deleted, and NULL if the call failed or its result is no JSON. */
int gb_cli_request(struct gpubuf_client *client, const char *method, cJSON *params, cJSON **answer);

/* As gb_cli_request, connects first, and tells of a failure. 0 and *answer, or a status. */
int gb_cli_ask(struct gb_cli *cli, const char *method, cJSON *params, cJSON **answer);

/* Asks `stat` about one version of a name, given by its number, or by its label; 0 and NULL: the
   current one. As gb_cli_ask; *answer has an object. */
int gb_cli_stat(struct gb_cli *cli, bool why, const char *name, int64_t version, const char *label,
                cJSON **answer);

/* Prints a text and ends it. A status: GB_STATUS_FAILED (told) if memory was out. */
int gb_cli_print(struct gb_writer *text);

/* Reads a command's options into *args and those that every command takes into cli->globals, and
   leaves the arguments in *args. 0, a status, or GB_CLI_HELP if --help was asked for. `argv[0]` is
   the command's name. */
#define GB_CLI_HELP 1000
int gb_cli_read_args(struct gb_cli *cli, int argc, char **argv, struct gb_cli_args *args);

/* Reads the options before the command into cli->globals; *used counts the words consumed, the
   program included. */
int gb_cli_read_globals(struct gb_cli *cli, int argc, char **argv, int *used);

/* Prints the help of cli->command, or of the whole program if that is NULL. */
void gb_cli_print_help(const struct gb_cli *cli);

/* Flushes standard output. 0, or GB_STATUS_FAILED (told; a closed pipe is no failure). */
int gb_cli_finish_output(void);

#endif
