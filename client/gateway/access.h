/*
 * A request over HTTP and its rights: where the Host and the Origin come from, what the query says.
 * Pure; any thread.
 */
#ifndef GB_ACCESS_H
#define GB_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of what was received; not terminated. NULL: absent. */
struct gb_http_text {
    const char *text;
    size_t length;
};

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
 * Whether a Host header is one that this server may be called by: an address, `localhost`, or one
 * of `names` (ended by NULL), each with `port` or, where that is 80, without one. A page elsewhere
 * that has its own name lead here does not get past this.
 */
bool gb_http_host_known(struct gb_http_text host, unsigned port, const char *const *names);

/* Whether an Origin is the page of this very server: "http://HOST" or "https://HOST". */
bool gb_http_origin_same(struct gb_http_text origin, struct gb_http_text host);

/* Compares in a time that tells nothing about where the two differ. */
bool gb_http_secret_same(struct gb_http_text given, const char *secret, size_t length);

#endif
