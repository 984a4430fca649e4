/*
 * The characters that JSON text is made of: tests of single bytes for json_check.c, json.c and
 * json_write.c. Nothing is read at or past `end`. Pure; any thread.
 */
#ifndef GB_JSON_CHARS_H
#define GB_JSON_CHARS_H

#include <stdbool.h>

static inline bool gb_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool gb_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline const char *gb_skip_space(const char *p, const char *end)
{
    /* Mostly there is no space, and the comparison with ' ' alone says so. */
    while (p < end && (unsigned char)*p <= ' ' && gb_is_space(*p))
        p++;
    return p;
}

/* Whether a byte of a string is *plain*, and so stands for itself: ASCII but for control
   characters, '"' and '\\'. */
static inline bool gb_is_plain(char c)
{
    static const bool plain[256] = {
        [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... 0x7f] = true};

    return plain[(unsigned char)c];
}

/* The first byte that is not plain, or `end`. Looking at eight or sixteen bytes at a time was not
   measurably faster: strings of messages are short. */
static inline const char *gb_skip_plain(const char *p, const char *end)
{
    while (p < end && gb_is_plain(*p))
        p++;
    return p;
}

#endif
