#include "client/peer/word.h"

#include <string.h>

static void write_half(struct gb_writer *writer, const unsigned char *half)
{
    gb_write_char(writer, '"');
    for (unsigned i = 0; i < GB_WORD_BYTES; i++)
        gb_write_format(writer, "%02x", half[i]);
    gb_write_char(writer, '"');
}

void gb_word_write(struct gb_writer *writer, const struct gb_word *word)
{
    GB_WRITE_LITERAL(writer, "\"described\":");
    write_half(writer, word->described);
    GB_WRITE_LITERAL(writer, ",\"content\":");
    write_half(writer, word->content);
}

static bool read_half(unsigned char *half, const struct gb_string *text)
{
    static const char digits[] = "0123456789abcdef";

    if (!text->text || text->length != 2 * GB_WORD_BYTES)
        return false;
    for (unsigned i = 0; i < 2 * GB_WORD_BYTES; i++) {
        const char *digit = text->text[i] ? strchr(digits, text->text[i]) : NULL;
        if (!digit)
            return false;
        half[i / 2] = (unsigned char)(half[i / 2] << 4 | (unsigned char)(digit - digits));
    }
    return true;
}

bool gb_word_read(struct gb_word *word, const struct gb_string *described,
                  const struct gb_string *content)
{
    word->told = read_half(word->described, described) && read_half(word->content, content);
    return word->told;
}
