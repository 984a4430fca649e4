/* The one pass over text that came from elsewhere; everything else in json.h relies on it. */
#include "json.h"

#include "json_scan.h"
#include "limits.h"
#include "utf8.h"

_Static_assert(GB_LIMIT(depth) <= 63, "a container is a bit of `objects`");

struct checker {
    const char *end;
    struct gb_pool *pool;
    const char *pause_at; /* when it has come past this */
    /* Where and why the check failed. */
    const char *at;
    const char *reason;
    unsigned depth;
    uint64_t objects; /* the open containers, the innermost lowest: 1 for an object */
};

static const char *refuse(struct checker *checker, const char *at, const char *reason)
{
    checker->at = at;
    checker->reason = reason;
    return NULL;
}

/* ---- scalars: each takes the place where it starts and returns the place after, or NULL ---- */

static int hex_digit(char c)
{
    if (gb_is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of "uXXXX" at `p`, or -1. */
static long code_unit(const char *p, const char *end)
{
    if (end - p < 5 || *p != 'u')
        return -1;
    long unit = 0;
    for (int i = 1; i <= 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* `p` is at the backslash. */
static const char *check_escape(struct checker *checker, const char *p)
{
    const char *end = checker->end;
    if (end - p < 2)
        return refuse(checker, end, "the string is not closed");
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return p + 2;
    case 'u':
        break;
    default:
        return refuse(checker, p, "unknown escape in a string");
    }
    long unit = code_unit(p + 1, end);
    if (unit < 0)
        return refuse(checker, p, "expected four hexadecimal digits after \\u");
    if (unit == 0)
        return refuse(checker, p, "\\u0000 is not accepted in a string");
    if (unit < 0xd800 || unit > 0xdfff)
        return p + 6;
    if (unit <= 0xdbff && end - p >= 8 && p[6] == '\\') {
        long low = code_unit(p + 7, end);
        if (low >= 0xdc00 && low <= 0xdfff)
            return p + 12;
    }
    return refuse(checker, p, "half of a surrogate pair in a string");
}

/* The slow part of a string, from its first byte that is not plain. */
static const char *check_special(struct checker *checker, const char *p)
{
    const char *end = checker->end;
    for (;;) {
        gb_pause_past(&checker->pause_at, p, checker->end, checker->pool);
        if (p == end)
            return refuse(checker, p, "the string is not closed");
        if (*p == '"')
            return p + 1;
        if (*p == '\\') {
            p = check_escape(checker, p);
            if (p == NULL)
                return NULL;
        } else if ((unsigned char)*p < 0x20) {
            return refuse(checker, p, "control character in a string; it must be escaped");
        } else {
            size_t length = gb_utf8_character(p, (size_t)(end - p));
            if (length == 0)
                return refuse(checker, p, "not UTF-8");
            p += length;
        }
        if (p < end && gb_is_plain(*p)) /* one that is not plain is often followed by another */
            p = gb_skip_plain(p, end);
    }
}

/* `p` is after the opening quote. */
static inline const char *check_string(struct checker *checker, const char *p)
{
    p = gb_skip_plain(p, checker->end);
    return p < checker->end && *p == '"' ? p + 1 : check_special(checker, p);
}

static inline const char *skip_digits(const char *p, const char *end)
{
    while (p < end && gb_is_digit(*p))
        p++;
    return p;
}

static inline const char *check_number(struct checker *checker, const char *p)
{
    const char *end = checker->end;
    if (*p == '-')
        p++;
    const char *digits = p;
    p = skip_digits(p, end);
    if (p == digits)
        return refuse(checker, p, "expected a digit");
    if (*digits == '0' && p - digits > 1)
        return refuse(checker, digits, "a number may not start with 0");
    if (p < end && *p == '.') {
        digits = ++p;
        p = skip_digits(p, end);
        if (p == digits)
            return refuse(checker, p, "expected a digit after the decimal point");
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        digits = p;
        p = skip_digits(p, end);
        if (p == digits)
            return refuse(checker, p, "expected a digit in the exponent");
    }
    return p;
}

static const char *check_word(struct checker *checker, const char *p, const char *word,
                              size_t length)
{
    if ((size_t)(checker->end - p) < length || memcmp(p, word, length) != 0)
        return refuse(checker, p, "expected a value");
    return p + length;
}

static inline const char *check_scalar(struct checker *checker, const char *p)
{
    switch (*p) {
    case '"':
        return check_string(checker, p + 1);
    case 't':
        return check_word(checker, p, "true", 4);
    case 'f':
        return check_word(checker, p, "false", 5);
    case 'n':
        return check_word(checker, p, "null", 4);
    default:
        if (*p == '-' || gb_is_digit(*p))
            return check_number(checker, p);
        return refuse(checker, p, "expected a value");
    }
}

/* ---- containers ---- */

/* From where a member's name is expected to where its value is. */
static inline const char *check_key(struct checker *checker, const char *p)
{
    if (p == checker->end || *p != '"')
        return refuse(checker, p, "expected a member's name in quotes");
    p = check_string(checker, p + 1);
    if (p == NULL)
        return NULL;
    p = gb_skip_space(p, checker->end);
    if (p == checker->end || *p != ':')
        return refuse(checker, p, "expected ':' after a member's name");
    return gb_skip_space(p + 1, checker->end);
}

/* At the bracket that opens a container: to its first value, or after it if it is empty (then the
   depth is as before). */
static inline const char *check_open(struct checker *checker, const char *p)
{
    if (checker->depth == GB_LIMIT(depth))
        return refuse(checker, p, "nested too deep");
    bool object = *p == '{';
    p = gb_skip_space(p + 1, checker->end);
    if (p < checker->end && *p == (object ? '}' : ']'))
        return p + 1;
    checker->depth++;
    checker->objects = checker->objects << 1 | object;
    return object ? check_key(checker, p) : p;
}

/* After a value: closes containers that end here; to the next value, or to the end of all. */
static inline const char *check_after(struct checker *checker, const char *p)
{
    for (;;) {
        p = gb_skip_space(p, checker->end);
        if (checker->depth == 0)
            return p == checker->end ? p : refuse(checker, p, "expected nothing after the value");
        bool object = checker->objects & 1;
        if (p == checker->end)
            return refuse(checker, p,
                          object ? "the object is not closed" : "the array is not closed");
        if (*p == ',') {
            p = gb_skip_space(p + 1, checker->end);
            return object ? check_key(checker, p) : p;
        }
        if (*p != (object ? '}' : ']'))
            return refuse(checker, p,
                          object ? "expected ',' or '}' after a member"
                                 : "expected ',' or ']' after an element");
        p++;
        checker->depth--;
        checker->objects >>= 1;
    }
}

/* Checks from a value's first byte to the end of the text. */
static const char *check_all(struct checker *checker, const char *p)
{
    do {
        gb_pause_past(&checker->pause_at, p, checker->end, checker->pool);
        if (p == checker->end)
            return refuse(checker, p, "expected a value");
        if (*p == '{' || *p == '[') {
            unsigned depth = checker->depth;
            p = check_open(checker, p);
            if (p != NULL && checker->depth > depth)
                continue; /* at its first value */
        } else {
            p = check_scalar(checker, p);
        }
        if (p != NULL)
            p = check_after(checker, p);
    } while (p != NULL && checker->depth > 0);
    return p;
}

int gb_json_check(const char *text, size_t length, struct gb_pool *pool, struct gb_json *value,
                  struct gb_error *error)
{
    struct checker checker = {.end = text + length, .pool = pool};
    checker.pause_at = gb_pause_next(text, checker.end, pool);
    const char *first = gb_skip_space(text, checker.end);
    if (check_all(&checker, first) == NULL)
        return gb_fail(error, GPUBUF_E_PARSE, "byte %zu: %s", (size_t)(checker.at - text),
                       checker.reason);
    const char *last = checker.end;
    while (gb_is_space(last[-1]))
        last--;
    *value = (struct gb_json){first, (size_t)(last - first)};
    return 0;
}

bool gb_utf8_valid(const char *text, size_t length)
{
    const char *end = text + length;
    for (const char *p = text; p < end;) {
        const char *special = gb_skip_plain(p, end);
        if (special > p) {
            p = special;
            continue;
        }
        size_t bytes = gb_utf8_character(p, (size_t)(end - p));
        if (bytes == 0 || *p == '\0')
            return false;
        p += bytes;
    }
    return true;
}
