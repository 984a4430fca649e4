/*
 * Names that requests wait for. All that wait for one name share a struct gb_missing, which is made
 * for the first of them and freed with the last. It says, too, which provider was asked to make the
 * name: provider.h looks after these members.
 *
 * When the name is published, or declined, the requests are woken one by one in the loop's turns:
 * neither request takes the longer for them. A name that was declined is in the table no more:
 * a later request has another struct, and the provider is asked again. The loop's thread.
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
    struct gb_link asking;        /* awaited by those who may have a provider asked */
    struct gb_link others;        /* and by those who may not */
    struct gb_link to_wake;       /* awaited by those who are to try again */
    struct gb_link woken;         /* in the server's list while there are some */
    uint64_t count;               /* of all three */
    int declined;                 /* the error's code; 0: it was not */
    char *message;                /* the provider's sentence; owned */

    struct gb_link turn;          /* to be asked for: of the server's or of a provider's lists */
    bool by_nobody;               /* nobody was found to ask */
    struct gb_provider *provider; /* who was asked; NULL: nobody, for now */
    uint64_t request, asked_ms;   /* while somebody is */
    size_t prefix_length;         /* of the prefix that the provider said */

    size_t name_length;
    char name[];
};

/* In the server. */
struct gb_missings {
    struct gb_hash_table table;
    struct gb_link woken;
    struct gb_providers providers;
};

void gb_missings_init(struct gb_missings *missings);
void gb_missings_end(struct gb_missings *missings);

/* The request waits for the name from now on: `awaited` has by, wait and asks, and stays where it
   is. GPUBUF_E_NO_MEMORY. */
int gb_missing_await(struct gb_missings *missings, struct gb_awaited *awaited, const char *name,
                     size_t length);
/* It waits no more. */
void gb_missing_leave(struct gb_missings *missings, struct gb_awaited *awaited);

/* A name has got an object, of a session's making (NULL: of none); or has none any more. */
void gb_missing_sealed(struct gb_missings *missings, const struct gb_object *object,
                       const struct gb_provider *by);
void gb_missing_gone(struct gb_missings *missings, const struct gb_object *object);
/* The provider that was asked says no. GPUBUF_E_NO_MEMORY: nothing has happened. */
int gb_missing_decline(struct gb_missings *missings, struct gb_missing *missing, int code,
                       const char *message);
/* The name, if requests wait for it; NULL. */
struct gb_missing *gb_missing_find(const struct gb_missings *missings, const char *name,
                                   size_t length);
/* A request that is to be tried again; NULL: there is none. */
struct gb_wait *gb_missing_next(struct gb_missings *missings);

#endif
