/*
 * UTF-8, one character at a time. Pure; any thread.
 */
#ifndef GB_UTF8_H
#define GB_UTF8_H

#include <stdbool.h>
#include <stddef.h>

static inline bool gb_utf8_is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Whether a character of two or more bytes may begin with `c`. */
static inline bool gb_utf8_begins_character(char c)
{
    return (unsigned char)c >= 0xc2 && (unsigned char)c <= 0xf4;
}

/*
 * Bytes of the well-formed character at `text` (1 to 4; Unicode's table 3-7: no overlong forms, no
 * surrogates, nothing above U+10FFFF), 0 if there is none within `length` bytes.
 */
static inline size_t gb_utf8_character(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    if (length == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (length < 2 || s[0] < 0xc2 || !gb_utf8_is_continuation(text[1]))
        return 0;
    if (s[0] < 0xe0)
        return 2;
    if (length < 3 || !gb_utf8_is_continuation(text[2]))
        return 0;
    if (s[0] < 0xf0) {
        bool overlong = s[0] == 0xe0 && s[1] < 0xa0;
        bool surrogate = s[0] == 0xed && s[1] >= 0xa0;
        return overlong || surrogate ? 0 : 3;
    }
    if (length < 4 || !gb_utf8_is_continuation(text[3]))
        return 0;
    bool overlong = s[0] == 0xf0 && s[1] < 0x90;
    bool too_high = s[0] > 0xf4 || (s[0] == 0xf4 && s[1] >= 0x90);
    return overlong || too_high ? 0 : 4;
}

/* Whether valid UTF-8 shows what it is: it has no control character (C0, DEL, C1), and none that
   separates lines, turns the direction of writing, or shows nothing. */
bool gb_utf8_is_plain(const char *text, size_t length);
/* Replaces all others by question marks, in place; `text` is valid UTF-8. */
void gb_utf8_make_plain(char *text);

/* `length` without a character that was split by cutting `text` there. */
static inline size_t gb_utf8_trim(const char *text, size_t length)
{
    size_t start = length;
    while (start > 0 && length - start < 3 && gb_utf8_is_continuation(text[start - 1]))
        start--;
    if (start == 0 || (unsigned char)text[start - 1] < 0xc0)
        return length;
    size_t have = length - (start - 1);
    unsigned char lead = (unsigned char)text[start - 1];
    size_t need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return have < need ? start - 1 : length;
}

#endif
