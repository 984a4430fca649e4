/*
 * The characters that JSON text is made of: what json_check.c, json.c and json_write.c ask of
 * single bytes. Nothing is read at or past `end`. Pure; any thread.
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
    /* Mostly there is none, and one comparison says so. */
    while (p < end && (unsigned char)*p <= ' ' && gb_is_space(*p))
        p++;
    return p;
}

/* Whether a byte of a string stands for itself and needs no look: ASCII but for control characters,
   '"' and '\\'. */
static inline bool gb_is_plain(char c)
{
    static const bool plain[256] = {
        [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... 0x7f] = true};

    return plain[(unsigned char)c];
}

/* The first byte that is not plain, or `end`. To look at eight or sixteen bytes at a time made no
   difference that could be measured: strings of messages are short. */
static inline const char *gb_skip_plain(const char *p, const char *end)
{
    while (p < end && gb_is_plain(*p))
        p++;
    return p;
}

#endif
