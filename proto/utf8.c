#include "utf8.h"

#include <string.h>

/* Whether a well-formed character could make a text look like another where it is shown, or a
   terminal obey it: control characters, separators of lines, and those that turn the direction of
   writing. */
static bool is_deceptive(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned character;

    if (s[0] < 0x80)
        return s[0] < 0x20 || s[0] == 0x7f;
    if (s[0] < 0xe0)
        character = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    else if (s[0] < 0xf0)
        character = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    else
        return false;
    return character < 0xa0 || character == 0x061c || character == 0x200e || character == 0x200f ||
           (character >= 0x2028 && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

bool gb_utf8_is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i += gb_utf8_character(text + i, length - i))
        if (is_deceptive(text + i))
            return false;
    return true;
}

void gb_utf8_make_plain(char *text)
{
    const char *from = text;
    size_t left = strlen(text);
    char *to = text;

    while (left > 0) {
        size_t bytes = gb_utf8_character(from, left);

        if (is_deceptive(from))
            *to++ = '?';
        else
            for (size_t i = 0; i < bytes; i++)
                *to++ = from[i];
        from += bytes;
        left -= bytes;
    }
    *to = '\0';
}
