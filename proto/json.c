/* Walking checked text, and reading it through tables. */
#include "json.h"

#include <stdio.h>
#include <string.h>

#include "json_scan.h"
#include "limits.h"
#include "utf8.h"

#define PATH_BYTES 256 /* of a path in a message */

/* ---- walking ---- */

/* The bits of bytes that a backslash takes the meaning from. *carry: whether the block's first byte
   is one, and then whether the next block's is. */
static uint64_t escaped_bytes(uint64_t escapes, uint64_t *carry)
{
    uint64_t escaped = *carry;
    escapes &= ~escaped;
    *carry = 0;
    while (escapes != 0) {
        uint64_t bit = escapes & -escapes;
        uint64_t next = bit << 1;
        if (next == 0)
            *carry = 1;
        escaped |= next;
        escapes &= ~(bit | next);
    }
    return escaped;
}

/* Every bit becomes the parity of itself and those below: from quotes to what is inside them. */
static inline uint64_t prefix_parity(uint64_t bits)
{
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    return bits;
}

/* From the opening bracket of a container to after its closing one, 64 bytes at a time. */
static const char *container_end(const char *p, const char *end, struct gb_pool *pool)
{
    const char *pause_at = gb_pause_next(p, end, pool);
    unsigned depth = 0;
    uint64_t inside = 0; /* all ones if the block starts inside a string */
    uint64_t carry = 0;
    for (; p < end; p += 64) {
        struct gb_scan scan;
        gb_pause_past(&pause_at, p, end, pool);
        if (end - p >= 64) {
            scan = gb_scan_block(p);
        } else {
            char tail[64] = {0};
            memcpy(tail, p, (size_t)(end - p));
            scan = gb_scan_block(tail);
        }
        if ((scan.escapes | carry) != 0)
            scan.quotes &= ~escaped_bytes(scan.escapes, &carry);
        inside ^= prefix_parity(scan.quotes);
        uint64_t brackets = (scan.opens | scan.closes) & ~inside;
        for (; brackets != 0; brackets &= brackets - 1) {
            if ((scan.opens & brackets & -brackets) != 0)
                depth++;
            else if (--depth == 0)
                return p + __builtin_ctzll(brackets) + 1;
        }
        inside = 0 - (inside >> 63);
    }
    return end;
}

static inline const char *value_end(const char *p, const char *end, struct gb_pool *pool)
{
    if (*p == '"') {
        p = gb_string_end(p + 1, end, pool);
        return p < end ? p + 1 : p;
    }
    if (*p == '{' || *p == '[')
        return container_end(p, end, pool);
    while (p < end && *p != ',' && !gb_is_space(*p))
        p++;
    return p;
}

enum gb_json_type gb_json_type(struct gb_json value)
{
    switch (value.text[0]) {
    case '{':
        return GB_JSON_OBJECT;
    case '[':
        return GB_JSON_ARRAY;
    case '"':
        return GB_JSON_STRING;
    case 't':
    case 'f':
        return GB_JSON_BOOL;
    case 'n':
        return GB_JSON_NULL;
    default:
        return GB_JSON_NUMBER;
    }
}

const char *gb_json_type_name(enum gb_json_type type)
{
    static const char *const names[] = {
        [GB_JSON_NULL] = "null",       [GB_JSON_BOOL] = "a boolean", [GB_JSON_NUMBER] = "a number",
        [GB_JSON_STRING] = "a string", [GB_JSON_ARRAY] = "an array", [GB_JSON_OBJECT] = "an object",
    };
    return names[type];
}

struct gb_json_walk gb_json_walk(struct gb_json container, struct gb_pool *pool)
{
    if (container.text == NULL || (container.text[0] != '{' && container.text[0] != '['))
        return (struct gb_json_walk){0};
    const char *first = container.text + 1, *end = container.text + container.length - 1;
    return (struct gb_json_walk){first, end, gb_pause_next(first, end, pool), pool};
}

/* Over what may stand between two values: white space, at most one `mark`, white space. */
static inline const char *skip_mark(const char *p, const char *end, char mark)
{
    p = gb_skip_space(p, end);
    return p < end && *p == mark ? gb_skip_space(p + 1, end) : p;
}

bool gb_json_next(struct gb_json_walk *walk, struct gb_json *key, struct gb_json *item)
{
    const char *end = walk->end;
    gb_pause_past(&walk->pause_at, walk->next, end, walk->pool);
    const char *p = skip_mark(walk->next, end, ',');
    if (p >= end) {
        walk->next = end;
        return false;
    }

    struct gb_json name = {0};
    if (*end == '}') { /* the closing bracket, which is not part of the walk */
        name.text = p + 1;
        p = gb_string_end(p + 1, end, walk->pool);
        name.length = (size_t)(p - name.text);
        p = skip_mark(p + 1, end, ':');
    }
    const char *after = value_end(p, end, walk->pool);
    if (key != NULL)
        *key = name;
    *item = (struct gb_json){p, (size_t)(after - p)};
    walk->next = after;
    return true;
}

/* Counts up to `most`. */
static size_t count_items(struct gb_json container, size_t most, struct gb_pool *pool)
{
    struct gb_json_walk walk = gb_json_walk(container, pool);
    struct gb_json item;
    size_t count = 0;
    while (count < most && gb_json_next(&walk, NULL, &item))
        count++;
    return count;
}

size_t gb_json_count(struct gb_json container, struct gb_pool *pool)
{
    return count_items(container, SIZE_MAX, pool);
}

/* ---- paths ---- */

/* Puts `text` in front of what is at `at`, as much of its end as there is room for from `start` on;
   returns the new place, `start` if it did not fit. */
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
    for (; step != NULL && at > buffer; step = step->up) {
        char number[32];
        const char *text = step->key;
        size_t length;
        if (text != NULL)
            length = strlen(text);
        else
            length =
                (size_t)snprintf(number, sizeof(number), "[%llu]", (unsigned long long)step->index);
        bool cut = length > (size_t)(at - buffer);
        at = put_before(buffer, at, text != NULL ? text : number, length);
        if (text != NULL && step->up != NULL && !cut) {
            cut = at == buffer;
            at = put_before(buffer, at, ".", 1);
        }
        if (cut)
            break;
    }
    if (step != NULL) { /* cut: from the first whole character that leaves room for the ellipsis */
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
    if (error == NULL)
        return GPUBUF_E_INVALID;
    char message[sizeof(error->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    message[gb_utf8_trim(message, strlen(message))] = '\0';
    char where[PATH_BYTES];
    gb_path_text(path, where, sizeof(where));
    return gb_fail(error, GPUBUF_E_INVALID, "%s%s%s", where, path != NULL ? ": " : "", message);
}

static int fail_type(struct gb_error *error, const struct gb_path *path, const char *expected,
                     struct gb_json value)
{
    const char *found = value.text == NULL ? "nothing" : gb_json_type_name(gb_json_type(value));
    return gb_fail_at(error, path, "expected %s, found %s", expected, found);
}

static inline bool is_type(struct gb_json value, enum gb_json_type type)
{
    return value.text != NULL && gb_json_type(value) == type;
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
    const char *p = value.text, *end = p + value.length;
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

/* What was found where an integer was expected, quoted if it is short enough to be. */
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
    bool cut = value.length > 32;
    return gb_fail_at(error, path, "expected %s, found %.*s%s", expected,
                      cut ? 32 : (int)value.length, value.text, cut ? "…" : "");
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

/* Checked text between quotes to plain bytes; `out` needs room for raw.length, since every escape
   is longer than what it stands for. Returns the length. */
static size_t unescape(struct gb_json raw, char *out, struct gb_pool *pool)
{
    static const char meaning[] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    const char *p = raw.text, *end = p + raw.length;
    const char *pause_at = gb_pause_next(p, end, pool);
    char *start = out;
    while (p < end) {
        gb_pause_past(&pause_at, p, end, pool);
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        size_t run = (size_t)((escape != NULL ? escape : end) - p);
        memcpy(out, p, run);
        out += run;
        if (escape == NULL)
            break;
        p = escape + 2;
        if (escape[1] != 'u') {
            *out++ = meaning[(unsigned char)escape[1]];
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

/* Copies up to the first escape; returns how much. Short strings are most, and not worth calls. */
static inline size_t copy_plain(char *out, struct gb_json raw)
{
    if (raw.length > 32) {
        const char *escape = memchr(raw.text, '\\', raw.length);
        size_t length = escape != NULL ? (size_t)(escape - raw.text) : raw.length;
        memcpy(out, raw.text, length);
        return length;
    }
    size_t length = 0;
    for (; length < raw.length && raw.text[length] != '\\'; length++)
        out[length] = raw.text[length];
    return length;
}

/* Decodes the text between a string's quotes into the pool. */
static inline int decode_string(struct gb_json raw, struct gb_pool *pool, struct gb_string *out)
{
    char *text = gb_pool_alloc(pool, raw.length + 1);
    if (text == NULL)
        return GPUBUF_E_NO_MEMORY;
    size_t length = copy_plain(text, raw);
    if (length < raw.length)
        length = unescape(raw, text, pool);
    text[length] = '\0';
    *out = (struct gb_string){text, length};
    return 0;
}

static int fail_memory(struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_NO_MEMORY, "%s", gb_error_text(GPUBUF_E_NO_MEMORY));
}

int gb_json_string(struct gb_json value, size_t max, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_string *out, struct gb_error *error)
{
    if (!is_type(value, GB_JSON_STRING))
        return fail_type(error, path, "a string", value);
    struct gb_string string;
    if (decode_string((struct gb_json){value.text + 1, value.length - 2}, pool, &string) < 0)
        return fail_memory(error);
    if (max > 0 && string.length > max)
        return gb_fail_at(error, path, "expected a string of at most %zu bytes, found %zu", max,
                          string.length);
    *out = string;
    return 0;
}

/* ---- tables ---- */

/* What every step of one gb_json_read needs. */
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

static inline bool is_name(const char *name, const char *key, size_t length)
{
    /* A key has no NUL in it, so this stops at the end of `name`. */
    for (size_t i = 0; i < length; i++) {
        if (name[i] != key[i])
            return false;
    }
    return name[length] == '\0';
}

/* The field of that name, looked for from `first` on; reader->count if there is none. */
static inline size_t find_field(const struct reader *reader, size_t first, const char *key,
                                size_t length)
{
    size_t i = first;
    for (size_t left = reader->count; left > 0; left--) {
        if (i >= reader->count)
            i = 0;
        if (is_name(reader->fields[i].name, key, length))
            return i;
        i++;
    }
    return reader->count;
}

static int read_array(struct gb_json value, size_t max, const struct gb_path *path,
                      struct gb_pool *pool, struct gb_json *out, struct gb_error *error)
{
    if (!is_type(value, GB_JSON_ARRAY))
        return fail_type(error, path, "an array", value);
    /* n elements take n bytes and n - 1 commas at least. */
    bool may_be_more = max > 0 && (value.length - 1) / 2 > max;
    if (may_be_more && count_items(value, max + 1, pool) > max)
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
        return read_array(value, (size_t)field->max, &here, reader->pool, out, reader->error);
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

/* A member whose raw name no field has: perhaps it is spelled with escapes, else it is unknown.
   Returns 0 and the field's index (reader->count: to be ignored) or an error. */
static int find_unusual(const struct reader *reader, struct gb_json key, size_t *index)
{
    *index = reader->count;
    bool escaped = key.length > 0 && memchr(key.text, '\\', key.length) != NULL;
    if (!escaped && reader->unknown == GB_UNKNOWN_IGNORE)
        return 0;
    struct gb_string name;
    if (decode_string(key, reader->pool, &name) < 0)
        return fail_memory(reader->error);
    if (escaped)
        *index = find_field(reader, 0, name.text, name.length);
    if (*index < reader->count || reader->unknown == GB_UNKNOWN_IGNORE)
        return 0;
    const struct gb_path here = {.up = reader->path, .key = name.text};
    return gb_fail_at(reader->error, &here, "unknown member");
}

/* The length of `name` if the key whose text starts at `key` is just that, else 0. Checked text has
   a quote after the key, which a name has not, so this reads no further. */
static inline size_t match_key(const char *name, const char *key)
{
    size_t length = 0;
    while (name[length] != '\0' && name[length] == key[length])
        length++;
    return name[length] == '\0' && key[length] == '"' ? length : 0;
}

/* The end of a number at `p` that is an integer in the field's range plainly written, which most
   are, in one look at its bytes; NULL if it is anything else. */
static inline const char *quick_uint(const struct gb_field *field, const char *p, const char *end,
                                     uint64_t *out)
{
    const char *start = p;
    uint64_t value = 0;
    for (; p < end && gb_is_digit(*p); p++)
        value = value * 10 + (uint64_t)(*p - '0');
    uint64_t max = field->max == 0 ? GB_LIMIT(integer) : (uint64_t)field->max;
    if (p == start || p - start > 18 || (p < end && *p != ',') || value < (uint64_t)field->min ||
        value > max)
        return NULL;
    *out = value;
    return p;
}

/* Reads the next member. 0, with the index of its field (reader->count: ignored); 1 at the end. */
static inline int read_member(struct reader *reader, struct gb_json_walk *walk, size_t likely,
                              size_t *index)
{
    const char *end = walk->end;
    const char *p = skip_mark(walk->next, end, ',');
    if (p >= end)
        return 1;
    const char *name = p + 1;
    size_t i = likely;
    size_t length = i < reader->count ? match_key(reader->fields[i].name, name) : 0;
    if (length == 0) {
        length = (size_t)(gb_string_end(name, end, walk->pool) - name);
        i = find_field(reader, likely, name, length);
        if (i == reader->count) {
            int rc = find_unusual(reader, (struct gb_json){name, length}, &i);
            if (rc < 0)
                return rc;
        }
    }
    *index = i;
    p = skip_mark(name + length + 1, end, ':');
    if (i == reader->count) {
        walk->next = value_end(p, end, walk->pool);
        return 0;
    }

    const struct gb_field *field = &reader->fields[i];
    if (reader->present >> i & 1) {
        const struct gb_path here = {.up = reader->path, .key = field->name};
        return gb_fail_at(reader->error, &here, "occurs twice");
    }
    reader->present |= UINT64_C(1) << i;
    if (field->type == GB_FIELD_UINT) {
        walk->next = quick_uint(field, p, end, (uint64_t *)(void *)(reader->out + field->offset));
        if (walk->next != NULL)
            return 0;
    }
    walk->next = value_end(p, end, walk->pool);
    return read_value(reader, field, (struct gb_json){p, (size_t)(walk->next - p)});
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
    if (object.text != NULL && gb_json_type(object) != GB_JSON_OBJECT)
        return fail_type(error, path, "an object", object);

    struct gb_json_walk walk = gb_json_walk(object, pool);
    size_t likely = 0; /* members mostly come in the table's order */
    for (;;) {
        size_t i;
        int rc = read_member(&reader, &walk, likely, &i);
        if (rc < 0)
            return rc;
        if (rc > 0)
            break;
        if (i < count)
            likely = i + 1;
    }
    int rc = check_required(&reader);
    if (rc == 0 && present != NULL)
        *present = reader.present;
    return rc;
}
