#include "client/peer/word.h"

void gb_word_write(struct gb_writer *writer, const struct gb_word *word)
{
    GB_WRITE_LITERAL(writer, "\"described\":");
    gb_write_base64(writer, word->described, GB_WORD_BYTES);
    GB_WRITE_LITERAL(writer, ",\"content\":");
    gb_write_base64(writer, word->content, GB_WORD_BYTES);
}

static bool read_half(unsigned char *half, const struct gb_string *text)
{
    return text->text &&
           gb_base64_decode(text->text, text->length, half, GB_WORD_BYTES) == GB_WORD_BYTES;
}

bool gb_word_read(struct gb_word *word, const struct gb_string *described,
                  const struct gb_string *content)
{
    word->told = read_half(word->described, described) && read_half(word->content, content);
    return word->told;
}
