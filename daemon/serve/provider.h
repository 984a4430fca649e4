/*
 * Providers: sessions that make names which other sessions wait for. A session says which prefixes
 * it provides. For each absent name with such a prefix that another session waits for, the daemon
 * sends it `wanted` once, and `unwanted` when nobody waits for the name any more.
 *
 * A name that requests wait for (missing.h) is in one of these lists, by its `turn`:
 *
 *     to_ask   the server's: a provider must be found, in a slice of a turn
 *     nobodys  the server's: no session provides the name, for now
 *     queued   a share's: `wanted` is sent when the provider has answered others, and reads
 *     asked    a provider's: `wanted` was sent
 *
 * and in none while the name has an object. When a provider comes, leaves, or ends a prefix, whole
 * lists are moved back to `to_ask`, so that no request takes longer for them.
 *
 * A *share* has the names of one provider that one user waits for. The users take turns, a name
 * each, and user_wanted bounds the names of a user that the provider is asked for at a time. A name
 * that several users wait for is in the share with fewer names.
 * Nothing here knows
 * sessions: the server hands down the functions that send to a provider. The loop's thread.
 */
#ifndef GB_PROVIDER_H
#define GB_PROVIDER_H

#include "daemon/base/shared_writer.h"
#include "daemon/objects/registry.h"
#include "daemon/serve/load.h"
#include "daemon/store/user.h"

struct gb_missing;

/* Part of each session, whether or not it provides anything. Zeroed at first, but for `all`, `user`
   and `gid`. */
struct gb_provider {
    struct gb_providers *all;
    struct gb_user *user;
    gid_t gid;
    struct gb_link prefixes; /* struct gb_prefix, owned */
    uint64_t prefix_count;
    struct gb_link shares; /* struct gb_user_share, owned */
    struct gb_link turns;  /* of shares with a name that may be asked for */
    struct gb_link asked;  /* struct gb_missing */
    uint64_t asked_count;
};

/* Freed with the last name that points to it. */
struct gb_user_share {
    struct gb_link of_provider, turn;
    struct gb_provider *provider; /* NULL: it has ended, or its queue was given up */
    struct gb_user *user;         /* with a reference */
    struct gb_link queued;        /* struct gb_missing */
    uint64_t count, asked;        /* names that point to it; those of them that were asked for */
};

/* A prefix that a session provides. */
struct gb_prefix {
    struct gb_link of_all, of_provider;
    struct gb_provider *provider;
    size_t length;
    char text[];
};

/* In the server. */
struct gb_providers {
    struct gb_link prefixes; /* of all sessions, in the order in which they were said */
    struct gb_link to_ask, nobodys;
    bool starved; /* memory was out for the first in `to_ask`: it waits for the next turn */
    uint64_t last_request;
    uint64_t wanted, provided, declined; /* so far */
    uint64_t provided_ms;                /* that the provided ones took, together */
    struct gb_loads loads;

    const struct gb_registry *registry;
    const struct gb_limits *limits;
    struct gb_shared_writer *notices;                     /* for messages to providers */
    bool (*is_there)(const struct gb_provider *provider); /* its session has not hung up */
    bool (*reads)(const struct gb_provider *provider);    /* little waits to be sent to it */
    void (*tell)(struct gb_provider *provider, const struct gb_writer *message);
};

/* For the end of the session: other providers are asked for its names. */
void gb_provider_end(struct gb_provider *provider);
/* Its session provides the prefix from now on. Does nothing if it does already. GPUBUF_E_LIMIT,
   GPUBUF_E_NO_MEMORY. */
int gb_provider_begin(struct gb_provider *provider, const char *prefix, size_t length,
                      struct gb_error *error);
/* Its session does not provide the prefix any more. Does nothing if it did not. */
void gb_provider_end_prefix(struct gb_provider *provider, const char *prefix, size_t length);

/* The name of a request that the provider has not answered yet; NULL if there is no such
   request. */
struct gb_missing *gb_provider_request(const struct gb_provider *provider, uint64_t request);

/* The name is absent, and a request of that user waits for it. */
void gb_provider_want(struct gb_providers *providers, struct gb_missing *missing,
                      struct gb_user *user);
/* Whether a provider was found that is still busy with other names. */
bool gb_provider_is_behind(const struct gb_missing *missing);
/* The name has an object, or was declined, or no request waits for it. `tell`: send `unwanted` to
   the provider that was asked. */
void gb_provider_over(struct gb_missing *missing, bool tell);
/* Sends `wanted` for queued names, as long as the provider reads and the limits allow. */
void gb_provider_pump(struct gb_provider *provider);
/* Whether gb_provider_pump() has more to send as soon as the provider reads. */
bool gb_provider_lags(const struct gb_provider *provider);

/* Whether a session provides such names, which need not be absent. */
bool gb_providers_cover(const struct gb_providers *providers, const char *name, size_t length);
/* Finds providers for names in `to_ask`: for one at least, and then until that time of uv_hrtime().
 */
void gb_providers_run(struct gb_providers *providers, uint64_t until);
/* Whether that has been cut short, and not for want of memory. */
bool gb_providers_have_more(const struct gb_providers *providers);

#endif
