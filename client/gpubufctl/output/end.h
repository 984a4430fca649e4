/*
 * The end of the program. gpubufctl runs one command, so whatever fails, memory that is out
 * included, ends it on the spot, with one sentence on standard error; the kernel and the daemon
 * take back what it had. So a function that returns has done its work, and only commands on several
 * names (rm, load) look at failures. Single-threaded.
 */
#ifndef GB_END_H
#define GB_END_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/errors.h"
#include "proto/wire/json.h"

/* Exit statuses; gpubufctl(1) documents them. */
enum gb_status {
    GB_STATUS_OK = 0,
    GB_STATUS_FAILED = 1,
    GB_STATUS_USAGE = 2,
    GB_STATUS_NO_DAEMON = 3,
    GB_STATUS_TIMEOUT = 4,
};

/* From now on failures are told as {"error":{"kind":…,"message":…}}, one line each. */
void gb_cli_json_errors(bool json);
/* Tells a failure: "gpubufctl: " and the sentence on standard error, control characters escaped. */
void gb_cli_say(const char *kind, const char *sentence);
/* The status that fits a code of the library. */
enum gb_status gb_cli_status_of(int code);

/* Has `undo` called before the program ends by a failure: one thing at a time, or NULL. */
void gb_cli_undo(void (*undo)(void));
_Noreturn void gb_cli_end(enum gb_status status);
/* Tells the failure, and ends. */
_Noreturn void gb_cli_fail(enum gb_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets the words that gb_cli_end_by has before the sentence: "cannot get movies". */
void gb_cli_about(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Tells the error, and ends. A failure of the system's names a file itself, and nothing comes
   before it. */
_Noreturn void gb_cli_end_by(const struct gb_error *error);
/* The same of a new error. */
_Noreturn void gb_cli_refuse(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

_Noreturn void gb_out_of_memory(void);
/* Memory that is zeroed, grown, or has that text; to be freed with free(). Never NULL. */
void *gb_new(size_t count, size_t size);
void *gb_grow(void *memory, size_t count, size_t size);
char *gb_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *gb_copy(const char *text, size_t length);
/* The text, ended by a NUL that does not count, which stays the writer's. Ends the program if the
   writer has failed. */
const char *gb_writer_text(struct gb_writer *writer);

#endif
