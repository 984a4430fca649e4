/*
 * The head of an HTTP/1.1 request, read strictly and in place, and the checks of who asks: where the
 * Host and the Origin come from, what the query says. Pure; any thread.
 *
 * What is read is what the daemon's own pages, Prometheus and curl send. Anything ambiguous (a header
 * that we look at twice, bare line feeds, folded lines, a body without a length) is refused, since
 * what two programs read differently is how requests are smuggled past a check.
 */
#ifndef GB_HTTP_REQUEST_H
#define GB_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_HTTP_HEAD_BYTES 8192 /* of a request's head; longer ones are refused */
#define GB_HTTP_HEADERS 64      /* in one */

/* A part of what was received; not terminated. NULL: absent. */
struct gb_http_text {
    const char *text;
    size_t length;
};

enum gb_http_method { GB_HTTP_GET, GB_HTTP_HEAD, GB_HTTP_POST, GB_HTTP_OTHER };

struct gb_http_request {
    enum gb_http_method method;
    struct gb_http_text path, query; /* of the target; the query without its "?" */
    struct gb_http_text host, origin, authorization, cookie, if_none_match, content_type;
    struct gb_http_text websocket_key, websocket_version, websocket_protocol;
    bool keep_alive;
    bool upgrade;            /* to a WebSocket is asked for */
    bool http_1_0;           /* chunks are not understood */
    uint64_t content_length; /* of the body that follows */
};

/*
 * Reads a head. Its length with the empty line, and *request filled in; 0 if there is more to come;
 * or minus the HTTP status to refuse it with: 400, 431 (too long, too many headers), 501 (a body in
 * chunks), 505.
 */
int gb_http_request_read(const char *text, size_t length, struct gb_http_request *request);

bool gb_http_is(struct gb_http_text text, const char *word);        /* equal */
bool gb_http_is_nocase(struct gb_http_text text, const char *word); /* but for case */

/*
 * The value of a query's (or a form's) parameter, percent-decoded and terminated, into `out`. Its
 * length; -1 if the parameter is not there; -2 if it is malformed, has a NUL, or does not fit.
 */
long gb_http_parameter(struct gb_http_text query, const char *name, char *out, size_t size);

/* The value of a cookie; absent if there is none of that name. */
struct gb_http_text gb_http_cookie(struct gb_http_text header, const char *name);

/*
 * Whether a Host header is one that this server may be called by: an address, `localhost`, or one of
 * `names` (ended by NULL), each with `port` or, where that is 80, without one. A page elsewhere that
 * has its own name lead here does not get past this.
 */
bool gb_http_host_known(struct gb_http_text host, unsigned port, const char *const *names);

/* Whether an Origin is the page of this very server: "http://HOST" or "https://HOST". */
bool gb_http_origin_same(struct gb_http_text origin, struct gb_http_text host);

/* Compares in a time that tells nothing about where the two differ. */
bool gb_http_secret_same(struct gb_http_text given, const char *secret, size_t length);

#endif
