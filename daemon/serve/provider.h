/*
 * Providers: sessions that make names which others wait for. A session says which prefixes it provides;
 * the daemon tells it once of each absent name below one of them that another session waits for
 * (`wanted`), and tells it, too, when that is over (`unwanted`).
 *
 * A name that is waited for (missing.h) is in one of these lists, by its `turn`:
 *
 *     to_ask   the server's: somebody is to be found to ask, in a slice of a turn
 *     nobodys  the server's: nobody provides it, for now
 *     queued   a provider's: its turn will come when the provider has answered others, and reads
 *     asked    a provider's: it was told
 *
 * and in none while the name has an object. When a provider comes, leaves, or ends a prefix, whole lists
 * go back to `to_ask`: no request takes longer for them. The loop's thread.
 */
#ifndef GB_PROVIDER_H
#define GB_PROVIDER_H

#include "daemon/serve/missing.h"
#include "proto/errors.h"

/* Of a session that provides something. */
struct gb_provider {
    struct gb_session *session;
    struct gb_link prefixes; /* struct gb_prefix, owned */
    uint64_t prefix_count;
    struct gb_link queued, asked; /* struct gb_missing */
    uint64_t asked_count;
};

/* What a session provides. */
struct gb_prefix {
    struct gb_link of_server, of_provider;
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
};

void gb_providers_init(struct gb_providers *providers);

/* Whether the session may provide the prefix: GPUBUF_E_DENIED, GPUBUF_E_LIMIT. */
int gb_provider_may(const struct gb_session *session, const char *prefix, size_t length,
                    struct gb_error *error);
/* It does from now on; fine if it does already. GPUBUF_E_NO_MEMORY. */
int gb_provider_begin(struct gb_session *session, const char *prefix, size_t length);
/* Not any more; fine if it did not. What it was asked for is asked of others. */
void gb_provider_end_prefix(struct gb_session *session, const char *prefix, size_t length);
void gb_provider_end(struct gb_session *session); /* all of it, with the session */

/* What the session was asked for and has not answered; NULL if there is no such request. */
struct gb_missing *gb_provider_request(const struct gb_session *session, uint64_t request);

/* The name is absent, and somebody waits for it. */
void gb_provider_want(struct gb_server *server, struct gb_missing *missing);
/* It is there, or declined, or nobody waits. `tell`: the provider that was asked. */
void gb_provider_over(struct gb_missing *missing, bool tell);
/* Asks for what is queued, as far as the provider may be asked, and reads what it is told. */
void gb_provider_pump(struct gb_session *session);
/* Whether there is more to tell it, as soon as it reads. */
bool gb_provider_lags(const struct gb_session *session);

/* Finds somebody to ask for names: for one at least, and then as long as there is time. */
void gb_providers_run(struct gb_server *server, uint64_t until);

#endif
