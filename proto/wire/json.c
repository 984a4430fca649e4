/* Walking a line's tape, and reading values through tables. */
#include "proto/wire/json.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/limits.h"
#include "proto/base/utf8.h"
#include "proto/wire/json_chars.h"

#define PATH_BYTES 256 /* of a path in a message */

/* ---- walking ---- */

const char *gb_json_type_name(enum gb_json_type type)
{
    static const char *const names[] = {
        [GB_JSON_NULL] = "null",       [GB_JSON_BOOL] = "a boolean", [GB_JSON_NUMBER] = "a number",
        [GB_JSON_STRING] = "a string", [GB_JSON_ARRAY] = "an array", [GB_JSON_OBJECT] = "an object",
    };
    return names[type];
}

static inline bool is_type(struct gb_json value, enum gb_json_type type)
{
    return value.text && gb_json_type(value) == type;
}

static inline struct gb_json_walk walk_of(struct gb_json container)
{
    const struct gb_json_token *token = container.token;

    if (!is_type(container, GB_JSON_OBJECT) && !is_type(container, GB_JSON_ARRAY))
        return (struct gb_json_walk){.line = NULL};
    return (struct gb_json_walk){
        .line = container.text - token->start,
        .next = token + 1,
        .end = token + token->span,
        .members = token->type == GB_JSON_OBJECT,
    };
}

static inline struct gb_json at_token(const struct gb_json_walk *walk)
{
    return (struct gb_json){walk->line + walk->next->start, walk->next};
}

static inline bool next_of(struct gb_json_walk *walk, struct gb_json *key, struct gb_json *item)
{
    if (walk->next == walk->end)
        return false;
    *key = (struct gb_json){NULL, NULL};
    if (walk->members) {
        *key = at_token(walk);
        walk->next++;
    }
    *item = at_token(walk);
    walk->next += walk->next->span;
    return true;
}

struct gb_json_walk gb_json_walk(struct gb_json container)
{
    return walk_of(container);
}

bool gb_json_next(struct gb_json_walk *walk, struct gb_json *key, struct gb_json *item)
{
    struct gb_json unused;

    return next_of(walk, key ? key : &unused, item);
}

size_t gb_json_count(struct gb_json container)
{
    struct gb_json_walk walk = walk_of(container);
    struct gb_json key, item;
    size_t count = 0;

    while (next_of(&walk, &key, &item))
        count++;
    return count;
}

/* Whether the text at `key` is `name` and then `end`. No name contains `end`, so nothing behind it
   is read. */
static inline bool is_name(const char *name, const char *key, char end)
{
    while (*name != '\0' && *name == *key) {
        name++;
        key++;
    }
    return *name == '\0' && *key == end;
}

bool gb_json_is(struct gb_json value, const char *text)
{
    return is_type(value, GB_JSON_STRING) && is_name(text, value.text + 1, '"');
}

/* ---- paths ---- */

/* Puts `text` in front of `at`; if it does not fit behind `start`, only its end. Returns the place
   where it begins. */
static char *put_before(char *start, char *at, const char *text, size_t length)
{
    size_t room = (size_t)(at - start);

    if (length > room) {
        text += length - room;
        length = room;
    }
    memcpy(at - length, text, length);
    return at - length;
}

const char *gb_path_text(const struct gb_path *path, char *buffer, size_t size)
{
    static const char ellipsis[] = "…";

    if (size == 0)
        return buffer;
    char *end = buffer + size - 1;
    char *at = end;
    *end = '\0';
    const struct gb_path *step = path;
    for (; step && at > buffer; step = step->up) {
        char number[32];
        const char *text = step->key;
        size_t length;
        if (text)
            length = strlen(text);
        else
            length =
                (size_t)snprintf(number, sizeof(number), "[%llu]", (unsigned long long)step->index);
        bool cut = length > (size_t)(at - buffer);
        at = put_before(buffer, at, text ? text : number, length);
        if (text && step->up && !cut) {
            cut = at == buffer;
            at = put_before(buffer, at, ".", 1);
        }
        if (cut)
            break;
    }
    if (step) { /* cut: from the first whole character that leaves room for the ellipsis */
        if (size <= sizeof(ellipsis)) {
            at = end;
        } else {
            at = buffer + sizeof(ellipsis) - 1;
            while (gb_utf8_is_continuation(*at))
                at++;
            at = put_before(buffer, at, ellipsis, sizeof(ellipsis) - 1);
        }
    }
    memmove(buffer, at, (size_t)(end - at) + 1);
    return buffer;
}

int gb_fail_at(struct gb_error *error, const struct gb_path *path, const char *format, ...)
{
    if (!error)
        return GPUBUF_E_INVALID;
    char message[sizeof(error->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    message[gb_utf8_trim(message, strlen(message))] = '\0';
    char where[PATH_BYTES];
    gb_path_text(path, where, sizeof(where));
    return gb_fail(error, GPUBUF_E_INVALID, "%s%s%s", where, path ? ": " : "", message);
}

static int fail_type(struct gb_error *error, const struct gb_path *path, const char *expected,
                     struct gb_json value)
{
    const char *found = !value.text ? "nothing" : gb_json_type_name(gb_json_type(value));

    return gb_fail_at(error, path, "expected %s, found %s", expected, found);
}

/* ---- numbers ---- */

struct integer {
    bool negative;
    bool overflow;
    uint64_t magnitude;
};

/* False if the number has a fraction or an exponent. */
static inline bool parse_integer(struct gb_json value, struct integer *out)
{
    const char *p = value.text, *end = p + gb_json_length(value);
    struct integer integer = {.negative = *p == '-'};

    if (integer.negative)
        p++;
    if (end - p <= 18) { /* cannot overflow */
        for (; p < end; p++) {
            if (!gb_is_digit(*p))
                return false;
            integer.magnitude = integer.magnitude * 10 + (uint64_t)(*p - '0');
        }
    }
    for (; p < end; p++) {
        if (!gb_is_digit(*p))
            return false;
        if (__builtin_mul_overflow(integer.magnitude, 10, &integer.magnitude) ||
            __builtin_add_overflow(integer.magnitude, (uint64_t)(*p - '0'), &integer.magnitude))
            integer.overflow = true;
    }
    *out = integer;
    return true;
}

/* gb_fail_at() with the number that was found, cut after 32 characters. */
__attribute__((format(printf, 4, 5))) static int fail_number(struct gb_error *error,
                                                             const struct gb_path *path,
                                                             struct gb_json value,
                                                             const char *format, ...)
{
    char expected[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(expected, sizeof(expected), format, arguments);
    va_end(arguments);
    bool cut = gb_json_length(value) > 32;
    return gb_fail_at(error, path, "expected %s, found %.*s%s", expected,
                      cut ? 32 : (int)gb_json_length(value), value.text, cut ? "…" : "");
}

int gb_json_uint(struct gb_json value, uint64_t min, uint64_t max, const struct gb_path *path,
                 uint64_t *out, struct gb_error *error)
{
    struct integer integer;

    if (!is_type(value, GB_JSON_NUMBER))
        return fail_type(error, path, "an integer", value);
    if (!parse_integer(value, &integer))
        return fail_number(error, path, value, "an integer without fraction or exponent");
    bool negative = integer.negative && integer.magnitude != 0;
    if (negative || integer.overflow || integer.magnitude < min || integer.magnitude > max)
        return fail_number(error, path, value, "an integer from %llu to %llu",
                           (unsigned long long)min, (unsigned long long)max);
    *out = integer.magnitude;
    return 0;
}

int gb_json_int(struct gb_json value, int64_t min, int64_t max, const struct gb_path *path,
                int64_t *out, struct gb_error *error)
{
    struct integer integer;

    if (!is_type(value, GB_JSON_NUMBER))
        return fail_type(error, path, "an integer", value);
    if (!parse_integer(value, &integer))
        return fail_number(error, path, value, "an integer without fraction or exponent");
    uint64_t largest = (uint64_t)INT64_MAX + integer.negative;
    int64_t number = (int64_t)(integer.negative ? 0 - integer.magnitude : integer.magnitude);
    if (integer.overflow || integer.magnitude > largest || number < min || number > max)
        return fail_number(error, path, value, "an integer from %lld to %lld", (long long)min,
                           (long long)max);
    *out = number;
    return 0;
}

/* ---- strings ---- */

static unsigned hex4(const char *p)
{
    unsigned unit = 0;

    for (int i = 0; i < 4; i++) {
        unsigned digit =
            gb_is_digit(p[i]) ? (unsigned)(p[i] - '0') : (unsigned)((p[i] | 0x20) - 'a') + 10;
        unit = unit << 4 | digit;
    }
    return unit;
}

static char *put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Decodes the text from `p` to `end`, between a string's quotes. `out` needs as much room, since
   every escape is longer than the bytes that it stands for. Returns the length. */
static size_t unescape(const char *p, const char *end, char *out)
{
    static const char meaning[] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    char *start = out;

    while (p < end) {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        p += 2;
        if (p[-1] != 'u') {
            *out++ = meaning[(unsigned char)p[-1]];
            continue;
        }
        unsigned code = hex4(p);
        p += 4;
        if (code >= 0xd800 && code <= 0xdbff) {
            code = 0x10000 + ((code - 0xd800) << 10) + (hex4(p + 2) - 0xdc00);
            p += 6;
        }
        out = put_utf8(out, code);
    }
    return (size_t)(out - start);
}

/* Decodes a string into the pool. */
static inline int decode_string(struct gb_json value, struct gb_pool *pool, struct gb_string *out)
{
    const char *first = value.text + 1;
    size_t length = gb_json_length(value) - 2;
    char *text = gb_pool_alloc(pool, length + 1);

    if (!text)
        return GPUBUF_E_NO_MEMORY;
    if (value.token->escaped) {
        length = unescape(first, first + length, text);
        if (memchr(text, '\0', length))
            return GPUBUF_E_INVALID; /* \u0000: texts end at a NUL */
    } else {
        memcpy(text, first, length);
    }
    text[length] = '\0';
    *out = (struct gb_string){text, length};
    return 0;
}

static int fail_decode(struct gb_error *error, const struct gb_path *path, int r)
{
    if (r == GPUBUF_E_INVALID)
        return gb_fail_at(error, path, "\\u0000 is not accepted in a string");
    return gb_fail(error, r, "%s", gb_error_text(r));
}

int gb_json_string(struct gb_json value, size_t max, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_string *out, struct gb_error *error)
{
    if (!is_type(value, GB_JSON_STRING))
        return fail_type(error, path, "a string", value);
    struct gb_string string;
    int r = decode_string(value, pool, &string);
    if (r < 0)
        return fail_decode(error, path, r);
    if (max > 0 && string.length > max)
        return gb_fail_at(error, path, "expected a string of at most %zu bytes, found %zu", max,
                          string.length);
    *out = string;
    return 0;
}

int gb_json_strings(struct gb_json array, const struct gb_path *path, struct gb_pool *pool,
                    struct gb_string **out, size_t *out_count, struct gb_error *error)
{
    size_t count = gb_json_count(array), i = 0;
    struct gb_string *strings = gb_pool_calloc(pool, count ? count : 1, sizeof(*strings));
    struct gb_json_walk walk = gb_json_walk(array);
    struct gb_json item;

    if (!strings)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "%s", gb_error_text(GPUBUF_E_NO_MEMORY));
    for (; gb_json_next(&walk, NULL, &item); i++) {
        struct gb_path step = {.up = path, .index = i};
        int r = gb_json_string(item, 0, &step, pool, &strings[i], error);

        if (r < 0)
            return r;
    }
    *out = strings;
    *out_count = count;
    return 0;
}

/* ---- tables ---- */

/* Shared by the steps of one gb_json_read. */
struct reader {
    const struct gb_field *fields;
    size_t count;
    enum gb_unknown unknown;
    const struct gb_path *path;
    struct gb_pool *pool;
    char *out;
    uint64_t present;
    struct gb_error *error;
};

/* The index of the field whose name is at `key`, with `end` after it; reader->count if there is
   none. The search begins with the field `first`. */
static inline size_t find_field(const struct reader *reader, size_t first, const char *key,
                                char end)
{
    size_t i = first;

    for (size_t left = reader->count; left > 0; left--) {
        if (i >= reader->count)
            i = 0;
        if (is_name(reader->fields[i].name, key, end))
            return i;
        i++;
    }
    return reader->count;
}

static int read_array(struct gb_json value, size_t max, const struct gb_path *path,
                      struct gb_json *out, struct gb_error *error)
{
    if (!is_type(value, GB_JSON_ARRAY))
        return fail_type(error, path, "an array", value);
    /* An element takes a token at least: a short span spares counting. */
    if (max > 0 && value.token->span > max && gb_json_count(value) > max)
        return gb_fail_at(error, path, "expected at most %zu elements", max);
    *out = value;
    return 0;
}

static int read_value(const struct reader *reader, const struct gb_field *field,
                      struct gb_json value)
{
    const struct gb_path here = {.up = reader->path, .key = field->name};
    void *out = reader->out + field->offset;

    switch (field->type) {
    case GB_FIELD_UINT:
        return gb_json_uint(value, (uint64_t)field->min,
                            field->max == 0 ? GB_LIMIT(integer) : (uint64_t)field->max, &here, out,
                            reader->error);
    case GB_FIELD_INT:
        if (field->min == 0 && field->max == 0)
            return gb_json_int(value, -(int64_t)GB_LIMIT(integer), (int64_t)GB_LIMIT(integer),
                               &here, out, reader->error);
        return gb_json_int(value, field->min, field->max, &here, out, reader->error);
    case GB_FIELD_BOOL:
        if (!is_type(value, GB_JSON_BOOL))
            return fail_type(reader->error, &here, "true or false", value);
        *(bool *)out = value.text[0] == 't';
        return 0;
    case GB_FIELD_STRING:
        return gb_json_string(value, (size_t)field->max, &here, reader->pool, out, reader->error);
    case GB_FIELD_ARRAY:
        return read_array(value, (size_t)field->max, &here, out, reader->error);
    case GB_FIELD_OBJECT:
        if (!is_type(value, GB_JSON_OBJECT))
            return fail_type(reader->error, &here, "an object", value);
        break;
    case GB_FIELD_ANY:
        break;
    }
    *(struct gb_json *)out = value;
    return 0;
}

/* Handles a member whose name, as it is spelled, is no field's: it is spelled with escapes, or is
   unknown. Returns 0 and the field's index (reader->count: ignore the member) or an error. */
static int find_unusual(const struct reader *reader, struct gb_json key, size_t *index)
{
    struct gb_string name;
    int r;

    *index = reader->count;
    if (!key.token->escaped && reader->unknown == GB_UNKNOWN_IGNORE)
        return 0;
    r = decode_string(key, reader->pool, &name);
    if (r < 0)
        return fail_decode(reader->error, reader->path, r);
    if (key.token->escaped)
        *index = find_field(reader, 0, name.text, '\0');
    if (*index < reader->count || reader->unknown == GB_UNKNOWN_IGNORE)
        return 0;
    const struct gb_path here = {.up = reader->path, .key = name.text};
    return gb_fail_at(reader->error, &here, "unknown member");
}

/* Reads a member. *likely: the index of the field that it probably is, and then of the next one. */
static inline int read_member(struct reader *reader, struct gb_json key, struct gb_json item,
                              size_t *likely)
{
    size_t i = find_field(reader, *likely, key.text + 1, '"');

    if (i == reader->count) {
        int r = find_unusual(reader, key, &i);
        if (r < 0 || i == reader->count)
            return r;
    }
    *likely = i + 1;
    if (reader->present >> i & 1) {
        const struct gb_path here = {.up = reader->path, .key = reader->fields[i].name};
        return gb_fail_at(reader->error, &here, "occurs twice");
    }
    reader->present |= UINT64_C(1) << i;
    return read_value(reader, &reader->fields[i], item);
}

static int check_required(const struct reader *reader)
{
    for (size_t i = 0; i < reader->count; i++) {
        const struct gb_field *field = &reader->fields[i];
        if ((field->flags & GB_FIELD_REQUIRED) && !(reader->present >> i & 1)) {
            const struct gb_path here = {.up = reader->path, .key = field->name};
            return gb_fail_at(reader->error, &here, "missing");
        }
    }
    return 0;
}

int gb_json_read(struct gb_json object, const struct gb_field *fields, size_t count,
                 enum gb_unknown unknown, const struct gb_path *path, struct gb_pool *pool,
                 void *out, uint64_t *present, struct gb_error *error)
{
    struct reader reader = {fields, count, unknown, path, pool, out, 0, error};
    struct gb_json_walk walk = walk_of(object);
    struct gb_json key, item;
    size_t likely = 0; /* members mostly come in the table's order */
    int r = 0;

    if (object.text && gb_json_type(object) != GB_JSON_OBJECT)
        return fail_type(error, path, "an object", object);
    while (r == 0 && next_of(&walk, &key, &item))
        r = read_member(&reader, key, item, &likely);
    if (r == 0)
        r = check_required(&reader);
    if (r == 0 && present)
        *present = reader.present;
    return r;
}

int gb_json_read_text(const char *text, size_t length, const struct gb_field *fields, size_t count,
                      const char *what, struct gb_pool *pool, void *out, struct gb_error *error)
{
    struct gb_path path = {.key = what};
    struct gb_json value;

    int r = gb_json_check(text, length, pool, &value, error);
    if (r == 0)
        r = gb_json_read(value, fields, count, GB_UNKNOWN_IGNORE, &path, pool, out, NULL, error);
    return r;
}
