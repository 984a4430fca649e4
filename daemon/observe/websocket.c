#include "daemon/observe/websocket.h"

#include <string.h>

#include "proto/json.h"

/* ---- SHA-1, which the handshake asks for; it protects nothing ---- */

static uint32_t rotate(uint32_t value, unsigned bits)
{
    return value << bits | value >> (32 - bits);
}

static void sha1_block(uint32_t state[5], const unsigned char *block)
{
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t next = rotate(a, 5) + f + e + w[i];

        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Of at most 119 bytes: two blocks with the padding. */
static void sha1(const char *data, size_t length, unsigned char out[20])
{
    uint32_t state[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    unsigned char blocks[128] = {0};
    size_t total = length + 9 <= 64 ? 64 : 128;

    memcpy(blocks, data, length);
    blocks[length] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        blocks[total - 1 - i] = (unsigned char)((uint64_t)length * 8 >> (8 * i));
    for (size_t at = 0; at < total; at += 64)
        sha1_block(state, blocks + at);
    for (unsigned i = 0; i < 20; i++)
        out[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the handshake ---- */

void gb_ws_accept(const char *key, size_t length, char out[GB_WS_ACCEPT_BYTES])
{
    static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[64 + sizeof(magic)];
    unsigned char digest[20];

    if (length > 64)
        length = 64; /* a key has 24 characters; what is none gets an answer that fits none */
    memcpy(text, key, length);
    memcpy(text + length, magic, sizeof(magic) - 1);
    sha1(text, length + sizeof(magic) - 1, digest);
    gb_base64_encode(digest, sizeof(digest), out);
}

/* ---- frames ---- */

size_t gb_ws_head(enum gb_ws_opcode opcode, uint64_t length, char out[GB_WS_HEAD_BYTES])
{
    unsigned bytes = length < 126 ? 0 : length < 65536 ? 2 : 8;

    out[0] = (char)(0x80 | opcode);
    out[1] = (char)(bytes == 0 ? length : bytes == 2 ? 126 : 127);
    for (unsigned i = 0; i < bytes; i++)
        out[2 + i] = (char)(length >> (8 * (bytes - 1 - i)));
    return 2 + bytes;
}

int gb_ws_read(char *text, size_t length, struct gb_ws_frame *frame)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t head = 2, payload;
    char mask[4];

    if (length < 2)
        return 0;
    frame->opcode = (enum gb_ws_opcode)(bytes[0] & 15);
    payload = bytes[1] & 127;
    if ((bytes[0] & 0x70) || !(bytes[1] & 0x80) || (frame->opcode > 2 && frame->opcode < 8) ||
        frame->opcode > 10)
        return -1002;
    if (frame->opcode >= 8 && (payload > 125 || !(bytes[0] & 0x80)))
        return -1002;
    if (payload == 127)
        return -1009;
    if (payload == 126) {
        if (length < 4)
            return 0;
        payload = (size_t)bytes[2] << 8 | bytes[3];
        head = 4;
    }
    if (payload > GB_WS_PAYLOAD)
        return -1009;
    if (length < head + 4 + payload)
        return 0;
    memcpy(mask, text + head, 4);
    frame->payload = text + head + 4;
    frame->length = payload;
    for (size_t i = 0; i < payload; i++)
        frame->payload[i] = (char)(frame->payload[i] ^ mask[i % 4]);
    return (int)(head + 4 + payload);
}
