/*
 * Providers: sessions that make names which others wait for. A session says which prefixes it
 * provides. The daemon tells it once of each absent name below one of them that another session
 * waits for (`wanted`), and tells it when that is over (`unwanted`).
 *
 * A name that is waited for (missing.h) is in one of these lists, by its `turn`:
 *
 *     to_ask   the server's: somebody is to be found to ask, in a slice of a turn
 *     nobodys  the server's: nobody provides it, for now
 *     queued   a provider's: its turn comes when the provider has answered others, and reads
 *     asked    a provider's: it was told
 *
 * and in none while the name has an object. When a provider comes, leaves, or ends a prefix, whole
 * lists go back to `to_ask`: no request takes longer for them. Nothing here knows sessions: the
 * server hands down the functions that tell a provider. The loop's thread.
 */
#ifndef GB_PROVIDER_H
#define GB_PROVIDER_H

#include "daemon/memory/user.h"
#include "daemon/objects/registry.h"
#include "proto/json.h"

struct gb_missing;

/* In each session, whether or not it provides something. */
struct gb_provider {
    struct gb_providers *all;
    struct gb_user *user;
    gid_t gid;
    struct gb_link prefixes; /* struct gb_prefix, owned */
    uint64_t prefix_count;
    struct gb_link queued, asked; /* struct gb_missing */
    uint64_t asked_count;
};

/* The prefixes that a session provides. */
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
    uint64_t last_request;
    uint64_t wanted, provided, declined; /* so far */

    const struct gb_registry *registry;
    const struct gb_limits *limits;
    struct gb_writer *writer;                             /* for what is told */
    bool (*is_there)(const struct gb_provider *provider); /* its session has not hung up */
    bool (*reads)(const struct gb_provider *provider);    /* little waits to be sent to it */
    void (*tell)(struct gb_provider *provider, const struct gb_writer *message);
};

void gb_providers_init(struct gb_providers *providers);

/* With a session, of that user. */
void gb_provider_init(struct gb_provider *provider, struct gb_providers *all, struct gb_user *user,
                      gid_t gid);
void gb_provider_end(struct gb_provider *provider); /* what it was asked for is asked of others */
/* It provides the prefix from now on; fine if it does already. GPUBUF_E_LIMIT,
   GPUBUF_E_NO_MEMORY. */
int gb_provider_begin(struct gb_provider *provider, const char *prefix, size_t length,
                      struct gb_error *error);
/* Not any more; fine if it did not. */
void gb_provider_end_prefix(struct gb_provider *provider, const char *prefix, size_t length);

/* A name that it was asked for and has not answered; NULL if there is no such request. */
struct gb_missing *gb_provider_request(const struct gb_provider *provider, uint64_t request);

/* The name is absent, and somebody waits for it. */
void gb_provider_want(struct gb_providers *providers, struct gb_missing *missing);
/* It is there, or declined, or nobody waits. `tell`: the provider that was asked. */
void gb_provider_over(struct gb_missing *missing, bool tell);
/* Asks for what is queued, as far as the provider may be asked, and reads what it is told. */
void gb_provider_pump(struct gb_provider *provider);
/* Whether there is more to tell it, as soon as it reads. */
bool gb_provider_lags(const struct gb_provider *provider);

/* Finds somebody to ask for names: for one at least, and then as long as there is time. */
void gb_providers_run(struct gb_providers *providers, uint64_t until);

#endif
