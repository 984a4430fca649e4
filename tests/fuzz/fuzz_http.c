/*
 * http: what strangers may send to the HTTP server, before anything else looks at it: the head of a
 * request, its query, cookies, Host and Origin; the frames of a WebSocket.
 *
 * The input is what comes. What is read must lie in it, must not depend on what follows it, and must not
 * change when it comes in two pieces.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/observe/http_request.h"
#include "daemon/observe/websocket.h"
#include "demand.h"
#include "proto/json.h"

static void check_inside(struct gb_http_text part, const char *text, size_t length)
{
    if (!part.text)
        return;
    DEMAND(part.text >= text && part.text + part.length <= text + length);
    DEMAND(!memchr(part.text, '\n', part.length) && !memchr(part.text, '\0', part.length));
}

static void check_parameters(struct gb_http_text query)
{
    static const char *const names[] = {"after", "limit", "gather", "token", ""};
    char out[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        long n = gb_http_parameter(query, names[i], out, sizeof(out));

        DEMAND(n >= -2 && n < (long)sizeof(out));
        DEMAND(n < 0 || strlen(out) == (size_t)n);
    }
}

static void check_request(const char *text, size_t length)
{
    static const char *const names[] = {"gpu7.example", NULL};
    struct gb_http_request request, again;
    int n = gb_http_request_read(text, length, &request);

    DEMAND(n <= (int)length && n <= GB_HTTP_HEAD_BYTES && n > -600);
    DEMAND(n >= 0 || n == -400 || n == -431 || n == -501 || n == -505);
    if (n > 0) {
        const struct gb_http_text parts[] = {
            request.path,          request.query,         request.host,
            request.origin,        request.authorization, request.cookie,
            request.if_none_match, request.content_type,  request.websocket_key,
        };

        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            check_inside(parts[i], text, (size_t)n);
        DEMAND(request.path.length > 0 && request.path.text[0] == '/');
        DEMAND(request.host.text || request.http_1_0);
        DEMAND(gb_http_request_read(text, (size_t)n, &again) == n);
        DEMAND(gb_http_request_read(text, (size_t)n - 1, &again) <= 0);
        check_parameters(request.query);
        gb_http_cookie(request.cookie, "gpubufd");
        /* A page that is let in is one of a host that is known. */
        if (request.origin.text && gb_http_host_known(request.host, 9464, names))
            gb_http_origin_same(request.origin, request.host);
    }
    check_parameters((struct gb_http_text){text, length});
}

static void check_host(const char *text, size_t length)
{
    static const char *const names[] = {"gpu7.example", NULL};
    struct gb_http_text host = {text, length};

    if (!gb_http_host_known(host, 9464, names))
        return;
    /* No letters but those of an address, `localhost`, or the name that was given. */
    if (length >= 12 && strncasecmp(text, "gpu7.example", 12) == 0)
        return;
    if (length >= 9 && strncasecmp(text, "localhost", 9) == 0)
        return;
    for (size_t i = 0; i < length; i++)
        DEMAND(strchr("0123456789abcdefABCDEF.:[]", text[i]) && text[i]);
}

static void check_frames(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    size_t at = 0;

    DEMAND(copy);
    memcpy(copy, text, length);
    while (at < length) {
        struct gb_ws_frame frame;
        int n = gb_ws_read(copy + at, length - at, &frame);

        DEMAND(n == -1002 || n == -1009 || (n >= 0 && n <= (int)(length - at)));
        if (n <= 0)
            break;
        DEMAND(frame.length <= GB_WS_PAYLOAD && frame.payload >= copy + at &&
               frame.payload + frame.length == copy + at + n);
        at += (size_t)n;
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* exactly as long, for the sanitizer */
    char accept[GB_WS_ACCEPT_BYTES];

    if (!text)
        return 0;
    memcpy(text, data, size);
    check_request(text, size);
    check_host(text, size);
    check_frames(text, size);
    gb_ws_accept(text, size, accept);
    gb_http_secret_same((struct gb_http_text){text, size}, "secret", 6);
    free(text);
    return 0;
}
