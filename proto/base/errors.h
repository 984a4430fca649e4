/*
 * Errors on their way to a person: a code of gpubuf.h's one list (negative, GPUBUF_E_…) and a
 * sentence that says what was wrong and what was expected. Internal functions that can fail return
 * 0 or such a code and, where they take a `struct gb_error`, fill it in on failure only.
 */
#ifndef GB_ERRORS_H
#define GB_ERRORS_H

#include <stdarg.h>
#include <stddef.h>

#include "gpubuf.h"

struct gb_error {
    int code;
    char message[1024]; /* a name, and 500 bytes of a provider's sentence, are the most */
    char name[256];     /* data.name: the object concerned; "" if none */
    const char *limit;  /* data.limit: a name of limits.h, static; NULL if none */
    const char *cuda;   /* data.cuda: the driver's name of its error, static; NULL if none */
};

/* Fills *error (message cut at its end if too long, name, limit and cuda cleared) and returns
 * `code`. `error` may be NULL. */
int gb_fail(struct gb_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* gb_fail with GPUBUF_E_NO_MEMORY: "out of memory". The daemon's answers say whose. */
int gb_fail_memory(struct gb_error *error);

/* As gb_fail for a failed system call: code GPUBUF_E_SYSTEM, ": strerror(errno)" appended. */
int gb_fail_errno(struct gb_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* gb_fail with GPUBUF_E_LIMIT for a limit of limits.h: `limit` is its static name. */
int gb_fail_limit(struct gb_error *error, const char *limit, long long value, const char *text);
#define GB_FAIL_LIMIT(error, name, text) gb_fail_limit((error), #name, GB_LIMIT(name), (text))

/* Tells clang's analyzer, which looks at one file at a time, that a failure is not 0. */
#if defined(__clang_analyzer__) && !defined(GB_ERRORS_DEFINED_HERE)
#define gb_fail(error, code, ...) (gb_fail(error, code, __VA_ARGS__), (code))
#define gb_fail_memory(error) (gb_fail_memory(error), GPUBUF_E_NO_MEMORY)
#define gb_fail_errno(error, ...) (gb_fail_errno(error, __VA_ARGS__), GPUBUF_E_SYSTEM)
#define gb_fail_limit(error, limit, value, text)                                                   \
    (gb_fail_limit(error, limit, value, text), GPUBUF_E_LIMIT)
#endif

/* "not_found" for GPUBUF_E_NOT_FOUND; "unknown" for a number that is no code. Static. */
const char *gb_error_kind(int code);
/* The fixed text. Static. */
const char *gb_error_text(int code);
/* The code of a kind on the wire; 0 if there is none. */
int gb_error_from_kind(const char *kind, size_t length);

#endif
