/*
 * Names that requests wait for. All requests that wait for one name share a struct gb_missing,
 * which is made for the first of them and freed with the last. It also says which provider was
 * asked to make the name: provider.h looks after these members.
 *
 * When the name is published, or declined, the requests are woken one by one in turns of the loop,
 * so that the request which publishes or declines takes no longer. A declined name leaves the
 * table: for a later request it has another struct, and a provider is asked again. The loop's
 * thread.
 */
#ifndef GB_MISSING_H
#define GB_MISSING_H

#include "daemon/base/hash.h"
#include "daemon/serve/provider.h"

struct gb_wait;

/* One request's wait for one name. */
struct gb_awaited {
    struct gb_link link;
    struct gb_missing *missing;
    struct gb_provider *by; /* of its session */
    struct gb_wait *wait;
    bool asks; /* a provider may be asked for it */
};

struct gb_missing {
    struct gb_hash_link in_table; /* unless it was declined */
    struct gb_link asking;        /* struct gb_awaited for which a provider may be asked */
    struct gb_link others;        /* struct gb_awaited for which none may be asked */
    struct gb_link to_wake;       /* struct gb_awaited of requests that must be tried again */
    struct gb_link woken;         /* in the server's list while `to_wake` is not empty */
    uint64_t count;               /* of struct gb_awaited; a request is once in the lists */
    int declined;                 /* the error's code; 0: it was not declined */
    char *message;                /* the sentence of the provider that was asked last; owned */

    struct gb_link turn;          /* in one of the lists of provider.h */
    bool by_nobody;               /* no provider was found for it */
    struct gb_user_share *share;  /* of a provider; NULL: none */
    struct gb_provider *provider; /* was asked to make it; NULL: none, for now */
    uint64_t request, asked_ms;   /* the request to the provider, and its time */
    size_t prefix_length;         /* of the provider's prefix */

    size_t name_length;
    char name[];
};

/* In the server. */
struct gb_missings {
    struct gb_hash_table table;
    struct gb_link woken;
    struct gb_providers providers;
};

/* The request waits for the name from now on. `awaited`, with `by`, `wait` and `asks` set, must
   stay where it is. GPUBUF_E_NO_MEMORY. */
int gb_missing_await(struct gb_missings *missings, struct gb_awaited *awaited, const char *name,
                     size_t length);
/* The request no longer waits for the name. */
void gb_missing_leave(struct gb_missings *missings, struct gb_awaited *awaited);

/* The name has got an object, which the session of `by` has made (NULL: no session). */
void gb_missing_sealed(struct gb_missings *missings, const struct gb_object *object,
                       const struct gb_provider *by);
/* The name has no object any more. */
void gb_missing_gone(struct gb_missings *missings, const struct gb_object *object);
/* The provider that was asked declines; with GPUBUF_E_TIMEOUT the request stays open, and only what
   those are told whose time is over changes. GPUBUF_E_NO_MEMORY: nothing has changed. */
int gb_missing_decline(struct gb_missings *missings, struct gb_missing *missing, int code,
                       const char *message);
/* The name, if requests wait for it; NULL. */
struct gb_missing *gb_missing_find(const struct gb_missings *missings, const char *name,
                                   size_t length);
/* Takes the next request that must be tried again; NULL: there is none. */
struct gb_wait *gb_missing_next(struct gb_missings *missings);

#endif
