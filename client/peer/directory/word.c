#include "client/peer/directory/word.h"

void gb_peer_word_write(struct gb_writer *writer, const struct gb_peer_word *word)
{
    GB_WRITE_LITERAL(writer, "{\"described\":");
    gb_write_base64(writer, word->described, GB_PEER_WORD_BYTES);
    GB_WRITE_LITERAL(writer, ",\"content\":");
    gb_write_base64(writer, word->content, GB_PEER_WORD_BYTES);
    gb_write_char(writer, '}');
}

static bool read_half(unsigned char *half, const struct gb_string *text)
{
    return text->text && gb_base64_decode(text->text, text->length, half, GB_PEER_WORD_BYTES) ==
                             GB_PEER_WORD_BYTES;
}

bool gb_peer_word_read(struct gb_peer_word *word, const struct gb_string *described,
                       const struct gb_string *content)
{
    word->told = read_half(word->described, described) && read_half(word->content, content);
    return word->told;
}
