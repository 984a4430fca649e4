/*
 * What of RFC 6455 a server needs that sends text and is sent nothing but control frames: the answer
 * to the handshake, the heads of frames, and reading a client's. Pure; any thread.
 */
#ifndef GB_WEBSOCKET_H
#define GB_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>

enum gb_ws_opcode {
    GB_WS_CONTINUATION = 0,
    GB_WS_TEXT = 1,
    GB_WS_BINARY = 2,
    GB_WS_CLOSE = 8,
    GB_WS_PING = 9,
    GB_WS_PONG = 10,
};

#define GB_WS_ACCEPT_BYTES 28
#define GB_WS_HEAD_BYTES 10 /* the longest head of a frame that a server sends */
#define GB_WS_PAYLOAD 1024  /* the longest frame that a client may send */

/* Sec-WebSocket-Accept for a Sec-WebSocket-Key; without a NUL. */
void gb_ws_accept(const char *key, size_t length, char out[GB_WS_ACCEPT_BYTES]);

/* The head of an unmasked, final frame; its length. */
size_t gb_ws_head(enum gb_ws_opcode opcode, uint64_t length, char out[GB_WS_HEAD_BYTES]);

struct gb_ws_frame {
    enum gb_ws_opcode opcode;
    char *payload; /* unmasked in place, inside what was received */
    size_t length;
};

/* Reads a client's frame: how many bytes it has; 0 if there is more to come; minus the status code
   to close with: 1002 (not allowed by the RFC), 1009 (too long). */
int gb_ws_read(char *text, size_t length, struct gb_ws_frame *frame);

#endif
