/*
 * Reads the parts of an HTTP request that its rights depend on: Host, Origin, cookie, secret; and
 * its query. Pure; any thread.
 */
#ifndef GB_GATEWAY_ACCESS_H
#define GB_GATEWAY_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of what was received; not terminated. NULL: absent. */
struct gb_gateway_http_text {
    const char *text;
    size_t length;
};

bool gb_gateway_http_is(struct gb_gateway_http_text text, const char *word); /* equal */
bool gb_gateway_http_is_nocase(struct gb_gateway_http_text text,
                               const char *word); /* equal, ignoring case */

/*
 * Writes the value of a query's (or a form's) parameter to `out`, percent-decoded and terminated.
 * Returns its length; -1 if there is no such parameter; -2 if it is malformed, has a NUL, or does
 * not fit.
 */
long gb_gateway_http_parameter(struct gb_gateway_http_text query, const char *name, char *out,
                               size_t size);

/* The value of a cookie; absent if there is none of that name. */
struct gb_gateway_http_text gb_gateway_http_cookie(struct gb_gateway_http_text header,
                                                   const char *name);

/* Whether an If-None-Match names an entity tag, compared weakly (RFC 9110, 13.1.2). */
bool gb_gateway_http_names_tag(struct gb_gateway_http_text header, const char *tag);
/* Whether an Accept-Encoding has the coding, and not with the weight zero. */
bool gb_gateway_http_accepts(struct gb_gateway_http_text header, const char *coding);

/*
 * Whether a Host header is one that this server may be called by: an address, `localhost`, or one
 * of `names` (ended by NULL), each with `port` or, where that is 80, without one. This stops DNS
 * rebinding: a page of another site whose own name leads to this address.
 */
bool gb_gateway_http_host_known(struct gb_gateway_http_text host, unsigned port,
                                const char *const *names);

/* Whether an Origin is that of this server's page: "http://HOST" or "https://HOST". */
bool gb_gateway_http_origin_same(struct gb_gateway_http_text origin,
                                 struct gb_gateway_http_text host);

/* Compares in a time that does not depend on where the two differ. */
bool gb_gateway_http_secret_same(struct gb_gateway_http_text given, const char *secret,
                                 size_t length);

#endif
