/*
 * The origin's word on a revision: what a machine that published an object says of it. Any machine
 * may say that it has a copy. Its answers are compared with the origin's word, so it decides
 * neither content nor layout, mode or label.
 *
 * Both members are the first half of a SHA-256: a checksum such as XXH3 finds faults, and does not
 * stop somebody who makes other content with the same sum.
 */
#ifndef GB_PEER_WORD_H
#define GB_PEER_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/json.h"

enum { GB_PEER_WORD_BYTES = 16 };

struct gb_peer_word {
    bool told;                                   /* false: it is not known */
    unsigned char described[GB_PEER_WORD_BYTES]; /* of layout, mode, label and length */
    unsigned char content[GB_PEER_WORD_BYTES];
};

/* {"described":"…","content":"…"}, in base64. */
void gb_peer_word_write(struct gb_writer *writer, const struct gb_peer_word *word);
/* False: one of the texts is not what gb_peer_word_write writes. */
bool gb_peer_word_read(struct gb_peer_word *word, const struct gb_string *described,
                       const struct gb_string *content);

#endif
