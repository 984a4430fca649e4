/*
 * JSON text: strict checking, reading through tables, and bounded writing.
 *
 * The reader is our own because it is strict, and says where a mistake is: it takes RFC 8259 with
 * nothing after the value, valid UTF-8 (no surrogates, no overlong forms), bounded nesting,
 * integers without fraction or exponent up to 2^52 - 1, no "\u0000" in a string that it decodes, no
 * member twice, none that is not known. A refusal names the byte, or the place:
 * "params.columns[2].dtype". The libraries for C that could be used instead take some of these, and
 * know no places (docs/decisions/0002-json-reader.md).
 *
 * A line is read once. gb_json_check passes over all its bytes, and writes a *tape*: a token for
 * each value and each member's name, in the order of the text, with where it begins, how long it
 * is, and how many tokens it spans. From then on a value is a place on the tape: its inside
 * follows, and the next value comes after the tokens that it spans. The readers below decode values
 * into structs as tables say, and look at no other bytes of the line.
 *
 * No state, no I/O; any thread. The tape lies in the pool; the text stays the caller's, and has to
 * stay where it is.
 */
#ifndef GB_JSON_H
#define GB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"
#include "proto/base/pool.h"

enum gb_json_type {
    GB_JSON_NULL,
    GB_JSON_BOOL,
    GB_JSON_NUMBER,
    GB_JSON_STRING,
    GB_JSON_ARRAY,
    GB_JSON_OBJECT,
};

/* A value or a member's name on the tape. A member has two tokens: its name (a string), then its
   value. */
struct gb_json_token {
    uint32_t start;       /* of its text, from the line's first byte */
    uint32_t length;      /* of its text; a string's with its quotes */
    uint32_t type : 3;    /* enum gb_json_type */
    uint32_t escaped : 1; /* a string with a backslash in it */
    uint32_t span : 28;   /* tokens from this one to the next that is not inside it */
};
#define GB_JSON_SPAN_MASK ((1u << 28) - 1)

/* A value of a checked line: the first byte of its text, and its token. `text` is NULL for
   "absent". */
struct gb_json {
    const char *text;
    const struct gb_json_token *token;
};

/*
 * Checks a whole line and writes its tape into the pool. On success *value is the line's value.
 * Else GPUBUF_E_PARSE and a sentence with the byte offset: "byte 17: expected ':' after a member's
 * name"; or GPUBUF_E_NO_MEMORY. The tape takes about six bytes for each byte of the text.
 */
int gb_json_check(const char *text, size_t length, struct gb_pool *pool, struct gb_json *value,
                  struct gb_error *error);

/* These two are for values that are not absent. */
static inline enum gb_json_type gb_json_type(struct gb_json value)
{
    return (enum gb_json_type)value.token->type;
}
static inline size_t gb_json_length(struct gb_json value) /* of its text */
{
    return value.token->length;
}

const char *gb_json_type_name(enum gb_json_type type); /* "an object", "a number", … */

/* Whether a value is the string `text`, spelled without escapes. `text` must need none. */
bool gb_json_is(struct gb_json value, const char *text);

/* Walks the members of an object or the elements of an array:
       struct gb_json_walk walk = gb_json_walk(value);
       while (gb_json_next(&walk, &key, &item)) …
   `key` (may be NULL) is the member's name, a string; absent in arrays. */
struct gb_json_walk {
    const char *line; /* its first byte */
    const struct gb_json_token *next, *end;
    bool members;
};
struct gb_json_walk gb_json_walk(struct gb_json container);
bool gb_json_next(struct gb_json_walk *walk, struct gb_json *key, struct gb_json *item);
/* Members or elements. */
size_t gb_json_count(struct gb_json container);

/* ---- paths, for error messages ---- */

/* A step of a path, linked on the stack from the inside out; printed as params.columns[2].dtype. */
struct gb_path {
    const struct gb_path *up; /* NULL: the outermost */
    const char *key;          /* a member's name, static or pool; NULL: an index */
    uint64_t index;
};

/* Writes the path, always terminated, cut in front ("…") if it does not fit. Returns `buffer`. */
const char *gb_path_text(const struct gb_path *path, char *buffer, size_t size);

/* gb_fail(GPUBUF_E_INVALID) with the path and ": " in front. */
int gb_fail_at(struct gb_error *error, const struct gb_path *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- reading through tables ---- */

/* A decoded string: unescaped, NUL-terminated (and without NUL inside), owned by the pool. */
struct gb_string {
    const char *text; /* NULL: absent */
    size_t length;
};

enum gb_field_type {
    /* Integers have neither fraction nor exponent. */
    GB_FIELD_UINT,   /* uint64_t; in [min, max] (max 0: 2^52 - 1) */
    GB_FIELD_INT,    /* int64_t; in [min, max] (both 0: ±(2^52 - 1)) */
    GB_FIELD_BOOL,   /* bool */
    GB_FIELD_STRING, /* struct gb_string, at most max bytes (0: no bound) */
    GB_FIELD_OBJECT, /* struct gb_json, an object, not looked into */
    GB_FIELD_ARRAY,  /* struct gb_json, an array of at most max elements (0: no bound) */
    GB_FIELD_ANY,    /* struct gb_json, a value of any type */
};

enum gb_field_flags {
    GB_FIELD_REQUIRED = 1,
};

struct gb_field {
    const char *name;
    enum gb_field_type type;
    unsigned flags;
    size_t offset; /* of the member in the struct read into */
    int64_t min, max;
};

#define GB_FIELD(struct_type, member, type_, flags_, min_, max_)                                   \
    {                                                                                              \
        .name = #member, .type = (type_), .flags = (flags_),                                       \
        .offset = offsetof(struct_type, member), .min = (min_), .max = (max_)                      \
    }

/* Members that the table does not name are refused, or ignored. */
enum gb_unknown { GB_UNKNOWN_REFUSE, GB_UNKNOWN_IGNORE };

/*
 * Reads `object` (absent: as if empty) into the struct at `out` as `fields` say (at most 64).
 * Members that are absent leave `out` untouched, so zero or default it first. *present (may be
 * NULL) has bit i set for field i. A known member that occurs twice is refused, always.
 * GPUBUF_E_INVALID with the path and what was expected; GPUBUF_E_NO_MEMORY. `out` may be partly
 * written on failure.
 */
int gb_json_read(struct gb_json object, const struct gb_field *fields, size_t count,
                 enum gb_unknown unknown, const struct gb_path *path, struct gb_pool *pool,
                 void *out, uint64_t *present, struct gb_error *error);

/* gb_json_check and gb_json_read in one, for a text that is an object; members that the table does
   not name are ignored. `what` it is called in errors. */
int gb_json_read_text(const char *text, size_t length, const struct gb_field *fields, size_t count,
                      const char *what, struct gb_pool *pool, void *out, struct gb_error *error);

/* Single values; same rules and errors as the table's. */
int gb_json_uint(struct gb_json value, uint64_t min, uint64_t max, const struct gb_path *path,
                 uint64_t *out, struct gb_error *error);
int gb_json_int(struct gb_json value, int64_t min, int64_t max, const struct gb_path *path,
                int64_t *out, struct gb_error *error);
int gb_json_string(struct gb_json value, size_t max, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_string *out, struct gb_error *error);
/* An array of strings of any length; `count` of them. */
int gb_json_strings(struct gb_json array, const struct gb_path *path, struct gb_pool *pool,
                    struct gb_string **strings, size_t *count, struct gb_error *error);

/* ---- writing ---- */

/* A growing buffer with a bound. After a failure (out of memory, past the bound) `failed` is set,
   writing does nothing more, and the caller checks once at the end. */
struct gb_writer {
    char *data;
    size_t length, capacity;
    size_t bound; /* 0: none */
    bool failed;
};

void gb_writer_init(struct gb_writer *writer, size_t bound);
void gb_writer_reset(struct gb_writer *writer); /* keeps the memory, clears length and failed */
void gb_writer_end(struct gb_writer *writer);   /* frees */
/* Takes the text out as a malloc'ed, NUL-terminated string (length to *length if not NULL); NULL if
   failed. The writer is empty afterwards. */
char *gb_writer_take(struct gb_writer *writer, size_t *length);

void gb_write(struct gb_writer *writer, const char *text, size_t length);
void gb_write_text(struct gb_writer *writer, const char *text); /* as it is */
#define GB_WRITE_LITERAL(writer, literal) gb_write((writer), "" literal, sizeof(literal) - 1)
/* A literal and a number, as in `,"seq":` and 7. */
#define GB_WRITE_UINT(writer, literal, value)                                                      \
    (GB_WRITE_LITERAL(writer, literal), gb_write_uint((writer), (value)))
void gb_write_char(struct gb_writer *writer, char c);
void gb_write_uint(struct gb_writer *writer, uint64_t value);
void gb_write_int(struct gb_writer *writer, int64_t value);
void gb_write_bool(struct gb_writer *writer, bool value);
void gb_write_double(struct gb_writer *writer, double value); /* NaN and infinities as null */
/* A quoted, escaped JSON string. Bytes that are not UTF-8, and NUL, become U+FFFD, so that the line
   is always one that gb_json_check takes. */
void gb_write_string(struct gb_writer *writer, const char *text, size_t length);
void gb_write_cstring(struct gb_writer *writer, const char *text);
void gb_write_base64(struct gb_writer *writer, const void *data, size_t length); /* in quotes */
/* printf of a text that needs no escaping. */
void gb_write_format(struct gb_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* JSON by a pattern: "{'name':%s,'version':%" PRIu64 ",'pinned':%i}". A ' stands for ", %s and %.*s
   are strings, in quotes and escaped (NULL: null), %i is true or false, and other integers are as
   printf has them. */
void gb_write_pattern(struct gb_writer *writer, const char *pattern, ...)
    __attribute__((format(printf, 2, 3)));
void gb_write_pattern_v(struct gb_writer *writer, const char *pattern, va_list *arguments);

/* base64 (RFC 4648, padded). Decoding is strict; returns bytes written or -1. */
size_t gb_base64_encode(const void *data, size_t length, char *out); /* 4*ceil(n/3), no NUL */
long gb_base64_decode(const char *text, size_t length, void *out, size_t capacity);

/* Whether the bytes are valid UTF-8 without NUL. */
bool gb_utf8_valid(const char *text, size_t length);

#endif
