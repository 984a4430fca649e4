#include "proto/base/utf8.h"

#include <stdint.h>
#include <string.h>

/* The characters from U+00A0 on that are not plain: those that separate lines or turn the direction
   of writing, and those that show nothing, by which two texts that differ could look the same
   (Unicode's Default_Ignorable_Code_Point, of version 16). */
static const struct {
    uint32_t first, last;
} ranges[] = {
    {0x00ad, 0x00ad},   {0x034f, 0x034f},   {0x061c, 0x061c}, {0x115f, 0x1160}, {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164},
    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0}, {0xfff0, 0xfff8}, {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

/* Whether a well-formed character could make a text look like another where it is shown, or a
   terminal obey it. */
static bool is_deceptive(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t character;

    if (s[0] < 0x80)
        return s[0] < 0x20 || s[0] == 0x7f;
    if (s[0] < 0xe0)
        character = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    else if (s[0] < 0xf0)
        character = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    else
        character =
            (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (character >= ranges[i].first && character <= ranges[i].last)
            return true;
    return character < 0xa0;
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
