/* The one pass over a received line: checks it and writes its tape. */
#include "proto/wire/json.h"

#include <string.h>

#include "proto/base/limits.h"
#include "proto/base/utf8.h"
#include "proto/wire/json_chars.h"

/* The limit of a token's fields: a text has no more tokens than bytes. */
#define TEXT_BYTES_MAX (((size_t)1 << 28) - 1)

struct checker {
    const char *text, *end;
    struct gb_json_token *next; /* the tape's end so far */
    /* Where and why the check failed. */
    const char *at;
    const char *reason;
    unsigned depth;
};

static const char *refuse(struct checker *checker, const char *at, const char *reason)
{
    checker->at = at;
    checker->reason = reason;
    return NULL;
}

/* ---- the tape ---- */

/* Puts a value with nothing inside it, from `start` to before `p`, on the tape. Returns `p`. Most
   values are such. Their token is written in one go: reading it back while it is in the processor's
   store buffer would take time. */
static inline const char *put_scalar(struct checker *checker, const char *start, const char *p,
                                     enum gb_json_type type, bool escaped)
{
    *checker->next++ = (struct gb_json_token){.start = (uint32_t)(start - checker->text),
                                              .length = (uint32_t)(p - start),
                                              .type = type,
                                              .escaped = escaped,
                                              .span = 1};
    return p;
}

/* Puts a token for the container that begins at `p` on the tape; end_token() fills in the rest. */
static inline struct gb_json_token *begin_token(struct checker *checker, const char *p,
                                                enum gb_json_type type)
{
    struct gb_json_token *token = checker->next++;

    *token = (struct gb_json_token){.start = (uint32_t)(p - checker->text), .type = type};
    return token;
}

/* The container ends before `p`. Returns `p`. */
static inline const char *end_token(const struct checker *checker, struct gb_json_token *token,
                                    const char *p)
{
    token->length = (uint32_t)(p - checker->text) - token->start;
    token->span = (unsigned)(checker->next - token) & GB_JSON_SPAN_MASK;
    return p;
}

/* ---- strings: each check takes the place where it starts and returns the place after, or NULL */

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
    if (unit < 0xd800 || unit > 0xdfff)
        return p + 6;
    if (unit <= 0xdbff && end - p >= 8 && p[6] == '\\') {
        long low = code_unit(p + 7, end);
        if (low >= 0xdc00 && low <= 0xdfff)
            return p + 12;
    }
    return refuse(checker, p, "half of a surrogate pair in a string");
}

/* A character that takes more than one byte, or one that no string may have. */
static const char *check_character(struct checker *checker, const char *p)
{
    size_t length;

    if ((unsigned char)*p < 0x20)
        return refuse(checker, p, "control character in a string; it must be escaped");
    length = gb_utf8_character(p, (size_t)(checker->end - p));
    return length > 0 ? p + length : refuse(checker, p, "not UTF-8");
}

/* The rest of a string that begins at `start`, from its first byte that is not plain. */
static const char *check_special(struct checker *checker, const char *start, const char *p)
{
    bool escaped = false;

    do {
        if (p == checker->end)
            return refuse(checker, p, "the string is not closed");
        if (*p == '"')
            return put_scalar(checker, start, p + 1, GB_JSON_STRING, escaped);
        escaped |= *p == '\\';
        p = *p == '\\' ? check_escape(checker, p) : check_character(checker, p);
        if (p)
            p = gb_skip_plain(p, checker->end);
    } while (p);
    return NULL;
}

/* `p` is at the opening quote. */
static inline const char *check_string(struct checker *checker, const char *start)
{
    const char *p = gb_skip_plain(start + 1, checker->end);

    if (p < checker->end && *p == '"')
        return put_scalar(checker, start, p + 1, GB_JSON_STRING, false);
    return check_special(checker, start, p);
}

/* ---- other scalars ---- */

static inline const char *skip_digits(const char *p, const char *end)
{
    while (p < end && gb_is_digit(*p))
        p++;
    return p;
}

/* The characters that may follow the digits of an integer. */
static const char *check_fraction(struct checker *checker, const char *p)
{
    const char *end = checker->end, *digits;

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

static inline const char *check_number(struct checker *checker, const char *start)
{
    const char *end = checker->end, *digits = *start == '-' ? start + 1 : start;
    const char *p = skip_digits(digits, end);

    if (p == digits)
        return refuse(checker, p, "expected a digit");
    if (*digits == '0' && p - digits > 1)
        return refuse(checker, digits, "a number may not start with 0");
    if (p < end && (*p == '.' || (*p | 0x20) == 'e'))
        p = check_fraction(checker, p);
    return p ? put_scalar(checker, start, p, GB_JSON_NUMBER, false) : NULL;
}

static const char *check_word(struct checker *checker, const char *p, const char *word,
                              enum gb_json_type type)
{
    size_t length = strlen(word);

    if ((size_t)(checker->end - p) < length || memcmp(p, word, length) != 0)
        return refuse(checker, p, "expected a value");
    return put_scalar(checker, p, p + length, type, false);
}

/* ---- containers: they nest as deep as GB_LIMIT(depth) ---- */

static const char *check_value(struct checker *checker, const char *p);

/* Checks a member's name and the colon. Returns the place where its value is expected. */
static inline const char *check_key(struct checker *checker, const char *p)
{
    if (p == checker->end || *p != '"')
        return refuse(checker, p, "expected a member's name in quotes");
    p = check_string(checker, p);
    if (!p)
        return NULL;
    p = gb_skip_space(p, checker->end);
    if (p == checker->end || *p != ':')
        return refuse(checker, p, "expected ':' after a member's name");
    return gb_skip_space(p + 1, checker->end);
}

/* Checks a container from after its opening bracket. Returns the place after the closing one. */
static const char *check_members(struct checker *checker, const char *p)
{
    const char *end = checker->end;

    p = gb_skip_space(p, end);
    if (p < end && *p == '}')
        return p + 1;
    for (;;) {
        p = check_key(checker, p);
        if (p)
            p = check_value(checker, p);
        if (!p)
            return NULL;
        p = gb_skip_space(p, end);
        if (p == end)
            return refuse(checker, p, "the object is not closed");
        if (*p == '}')
            return p + 1;
        if (*p != ',')
            return refuse(checker, p, "expected ',' or '}' after a member");
        p = gb_skip_space(p + 1, end);
    }
}

static const char *check_elements(struct checker *checker, const char *p)
{
    const char *end = checker->end;

    p = gb_skip_space(p, end);
    if (p < end && *p == ']')
        return p + 1;
    for (;;) {
        p = check_value(checker, p);
        if (!p)
            return NULL;
        p = gb_skip_space(p, end);
        if (p == end)
            return refuse(checker, p, "the array is not closed");
        if (*p == ']')
            return p + 1;
        if (*p != ',')
            return refuse(checker, p, "expected ',' or ']' after an element");
        p = gb_skip_space(p + 1, end);
    }
}

static const char *check_container(struct checker *checker, const char *p)
{
    bool object = *p == '{';
    struct gb_json_token *token;

    if (checker->depth == GB_LIMIT(depth))
        return refuse(checker, p, "nested too deep");
    checker->depth++;
    token = begin_token(checker, p, object ? GB_JSON_OBJECT : GB_JSON_ARRAY);
    p = object ? check_members(checker, p + 1) : check_elements(checker, p + 1);
    checker->depth--;
    return p ? end_token(checker, token, p) : NULL;
}

static const char *check_value(struct checker *checker, const char *p)
{
    if (p == checker->end)
        return refuse(checker, p, "expected a value");
    switch (*p) {
    case '"':
        return check_string(checker, p);
    case '{':
    case '[':
        return check_container(checker, p);
    case 't':
        return check_word(checker, p, "true", GB_JSON_BOOL);
    case 'f':
        return check_word(checker, p, "false", GB_JSON_BOOL);
    case 'n':
        return check_word(checker, p, "null", GB_JSON_NULL);
    default:
        if (*p == '-' || gb_is_digit(*p))
            return check_number(checker, p);
        return refuse(checker, p, "expected a value");
    }
}

static const char *check_text(struct checker *checker)
{
    const char *p;

    p = check_value(checker, gb_skip_space(checker->text, checker->end));
    if (!p)
        return NULL;
    p = gb_skip_space(p, checker->end);
    return p == checker->end ? p : refuse(checker, p, "expected nothing after the value");
}

/*
 * The most tokens that a text can have. A scalar is followed by a comma, a colon, a closing bracket
 * or the end, and a container has two brackets. So each token takes two bytes, except the last one
 * and the containers that are still open where the check fails.
 */
static size_t most_tokens(size_t length)
{
    return length / 2 + 1 + GB_LIMIT(depth);
}

int gb_json_check(const char *text, size_t length, struct gb_pool *pool, struct gb_json *value,
                  struct gb_error *error)
{
    struct checker checker = {.text = text, .end = text + length};
    size_t room = most_tokens(length) * sizeof(struct gb_json_token);
    struct gb_json_token *tape;

    if (length > TEXT_BYTES_MAX)
        return gb_fail(error, GPUBUF_E_PARSE, "byte %zu: the text is too long", TEXT_BYTES_MAX);
    tape = gb_pool_alloc(pool, room);
    if (!tape)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "%s", gb_error_text(GPUBUF_E_NO_MEMORY));
    checker.next = tape;
    if (!check_text(&checker))
        return gb_fail(error, GPUBUF_E_PARSE, "byte %zu: %s", (size_t)(checker.at - text),
                       checker.reason);
    gb_pool_shrink(pool, tape, room, (size_t)((char *)checker.next - (char *)tape));
    *value = (struct gb_json){text + tape->start, tape};
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
