#include "daemon/serve/provider.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "daemon/base/clock.h"
#include "daemon/serve/missing.h"
#include "proto/wire/rpc.h"

/* ---- messages to providers ---- */

static struct gb_writer *begin_notice(const struct gb_provider *provider, const char *method,
                                      const struct gb_missing *missing)
{
    struct gb_writer *writer = gb_shared_writer_acquire(provider->all->notices);

    gb_rpc_begin_notification(writer, method, 0);
    gb_write_format(writer, "{\"request\":%" PRIu64 ",\"prefix\":", missing->request);
    gb_write_string(writer, missing->name, missing->prefix_length);
    return writer;
}

static void end_notice(struct gb_provider *provider, struct gb_writer *writer)
{
    gb_write_char(writer, '}');
    gb_rpc_end(writer);
    provider->all->tell(provider, writer);
    gb_shared_writer_return(writer);
}

/* The first session, other than the provider's, that waits for the name: one of that user if there
   is one. NULL: none. session_waits bounds the walk. */
static const struct gb_provider *asker(const struct gb_missing *missing,
                                       const struct gb_provider *provider,
                                       const struct gb_user *user)
{
    const struct gb_provider *first = NULL;

    GB_LIST_EACH(&missing->asking, const struct gb_awaited, awaited, link) {
        if (awaited->by == provider)
            continue;
        if (!user || awaited->by->user == user)
            return awaited->by;
        if (!first)
            first = awaited->by;
    }
    return first;
}

/* ---- shares ---- */

static struct gb_user_share *share_of(const struct gb_provider *provider,
                                      const struct gb_user *user)
{
    GB_LIST_EACH(&provider->shares, struct gb_user_share, share, of_provider) {
        if (share->user == user)
            return share;
    }
    return NULL;
}

static struct gb_user_share *share_new(struct gb_provider *provider, struct gb_user *user)
{
    struct gb_user_share *share = calloc(1, sizeof(*share));

    if (!share)
        return NULL;
    share->provider = provider;
    share->user = gb_user_ref(user);
    gb_list_append(&provider->shares, &share->of_provider);
    return share;
}

/* The share takes a turn again, if it has a name that may be asked for. */
static void queue_share(struct gb_user_share *share)
{
    if (share->provider && !gb_list_linked(&share->turn) && !gb_list_empty(&share->queued) &&
        share->asked < share->provider->all->limits->user_wanted)
        gb_list_append(&share->provider->turns, &share->turn);
}

static void leave_share(struct gb_missing *missing)
{
    struct gb_user_share *share = missing->share;

    missing->share = NULL;
    if (!share || --share->count > 0)
        return;
    gb_list_remove(&share->of_provider);
    gb_list_remove(&share->turn);
    gb_user_unref(share->user);
    free(share);
}

/* Queues the name, which is in no list. False, and it is in none, if memory is out. */
static bool join_share(struct gb_provider *provider, struct gb_user *user,
                       struct gb_missing *missing)
{
    struct gb_user_share *share = share_of(provider, user);

    if (!share)
        share = share_new(provider, user);
    if (!share)
        return false;
    leave_share(missing);
    missing->share = share;
    share->count++;
    gb_list_append(&share->queued, &missing->turn);
    queue_share(share);
    return true;
}

/* Nothing more is asked for by way of the share. Names of its queue leave it one by one. */
static void detach_share(struct gb_user_share *share, struct gb_link *to_ask)
{
    gb_list_move(&share->queued, to_ask);
    gb_list_remove(&share->turn);
    gb_list_remove(&share->of_provider);
    share->provider = NULL;
}

/* Another user waits for a name that is queued: it counts for the one with fewer names. */
static void share_with(struct gb_missing *missing, struct gb_user *user)
{
    const struct gb_user_share *theirs = missing->share, *own = share_of(theirs->provider, user);

    if (theirs->user == user || (own && own->count >= theirs->count))
        return;
    gb_list_remove(&missing->turn);
    if (!join_share(theirs->provider, user, missing))
        gb_list_append(&missing->share->queued, &missing->turn);
}

bool gb_provider_is_behind(const struct gb_missing *missing)
{
    return missing->share && missing->share->provider && !missing->provider;
}

static void send_wanted(struct gb_provider *provider, struct gb_missing *missing,
                        const struct gb_provider *by)
{
    struct gb_writer *writer;

    missing->provider = provider;
    missing->request = ++provider->all->last_request;
    free(missing->message); /* of one that was asked before */
    missing->message = NULL;
    missing->asked_ms = gb_now_ms();
    gb_list_append(&provider->asked, &missing->turn);
    provider->asked_count++;
    missing->share->asked++;
    provider->all->wanted++;
    writer = begin_notice(provider, "wanted", missing);
    GB_WRITE_LITERAL(writer, ",\"name\":");
    gb_write_string(writer, missing->name, missing->name_length);
    gb_write_format(writer, ",\"uid\":%u,\"gid\":%u", by->user->uid, by->gid);
    end_notice(provider, writer);
}

/* Takes the name off those that the provider was asked for. */
static void unask(struct gb_missing *missing)
{
    missing->provider->asked_count--;
    missing->provider = NULL;
    missing->share->asked--;
    queue_share(missing->share);
    leave_share(missing);
}

bool gb_provider_lags(const struct gb_provider *provider)
{
    return !gb_list_empty(&provider->turns) &&
           provider->asked_count < provider->all->limits->session_wanted;
}

void gb_provider_pump(struct gb_provider *provider)
{
    /* Stops while the provider does not read: requests of others must not fill its output, for
       which its session would be ended. */
    while (gb_provider_lags(provider) && provider->all->is_there(provider) &&
           provider->all->reads(provider)) {
        struct gb_user_share *share =
            GB_CONTAINER(provider->turns.next, struct gb_user_share, turn);
        struct gb_missing *missing;
        const struct gb_provider *by;

        gb_list_remove(&share->turn);
        if (gb_list_empty(&share->queued))
            continue; /* no request waits for its names any more */
        missing = GB_CONTAINER(share->queued.next, struct gb_missing, turn);
        by = asker(missing, provider, share->user);
        gb_list_remove(&missing->turn);
        if (by)
            send_wanted(provider, missing, by);
        else
            gb_list_append(&provider->all->to_ask, &missing->turn);
        queue_share(share);
        if (!by)
            leave_share(missing);
    }
}

/* ---- finding a provider ---- */

static bool begins_name(const struct gb_prefix *prefix, const char *name, size_t length)
{
    return prefix->length <= length && memcmp(prefix->text, name, prefix->length) == 0;
}

bool gb_providers_cover(const struct gb_providers *providers, const char *name, size_t length)
{
    GB_LIST_EACH(&providers->prefixes, struct gb_prefix, prefix, of_all)
        if (begins_name(prefix, name, length))
            return true;
    return false;
}

/* The longest prefix of the name that a session provides; if several provide it, that of the first.
   A session is not asked for a name that only it waits for. */
static struct gb_prefix *find_prefix(const struct gb_providers *providers,
                                     const struct gb_missing *missing)
{
    struct gb_prefix *best = NULL;

    GB_LIST_EACH(&providers->prefixes, struct gb_prefix, prefix, of_all) {
        if (begins_name(prefix, missing->name, missing->name_length) &&
            (!best || prefix->length > best->length) && providers->is_there(prefix->provider) &&
            asker(missing, prefix->provider, NULL))
            best = prefix;
    }
    return best;
}

/* False if memory is out: the name stays to be asked for. */
static bool find_provider(struct gb_providers *providers, struct gb_missing *missing)
{
    struct gb_prefix *prefix = NULL;
    struct gb_provider *provider;

    gb_list_remove(&missing->turn);
    leave_share(missing);
    if (!gb_registry_find(providers->registry, missing->name, missing->name_length))
        prefix = find_prefix(providers, missing);
    missing->by_nobody = !prefix;
    if (!prefix) {
        gb_list_append(&providers->nobodys, &missing->turn);
        return true;
    }
    provider = prefix->provider;
    missing->prefix_length = prefix->length;
    if (!join_share(provider, asker(missing, provider, NULL)->user, missing)) {
        gb_list_append(&providers->to_ask, &missing->turn);
        return false;
    }
    gb_provider_pump(provider);
    return true;
}

void gb_providers_run(struct gb_providers *providers, uint64_t until)
{
    providers->starved = false;
    while (!gb_list_empty(&providers->to_ask)) {
        providers->starved = !find_provider(
            providers, GB_CONTAINER(providers->to_ask.next, struct gb_missing, turn));
        if (providers->starved || uv_hrtime() >= until)
            return;
    }
}

bool gb_providers_have_more(const struct gb_providers *providers)
{
    return !gb_list_empty(&providers->to_ask) && !providers->starved;
}

void gb_provider_want(struct gb_providers *providers, struct gb_missing *missing,
                      struct gb_user *user)
{
    if (user && gb_provider_is_behind(missing))
        share_with(missing, user);
    if (!missing->by_nobody && gb_list_linked(&missing->turn))
        return;
    missing->by_nobody = false;
    gb_list_remove(&missing->turn);
    gb_list_append(&providers->to_ask, &missing->turn);
}

void gb_provider_over(struct gb_missing *missing, bool tell)
{
    struct gb_provider *provider = missing->provider;

    gb_list_remove(&missing->turn);
    missing->by_nobody = true;
    if (!provider) {
        leave_share(missing);
        return;
    }
    unask(missing);
    if (tell)
        end_notice(provider, begin_notice(provider, "unwanted", missing));
    gb_provider_pump(provider);
}

/* ---- prefixes ---- */

static struct gb_prefix *prefix_of(const struct gb_provider *provider, const char *text,
                                   size_t length)
{
    GB_LIST_EACH(&provider->prefixes, struct gb_prefix, prefix, of_provider) {
        if (prefix->length == length && memcmp(prefix->text, text, length) == 0)
            return prefix;
    }
    return NULL;
}

int gb_provider_begin(struct gb_provider *provider, const char *text, size_t length,
                      struct gb_error *error)
{
    struct gb_providers *all = provider->all;
    const struct gb_limits *limits = all->limits;
    struct gb_prefix *prefix;

    if (prefix_of(provider, text, length))
        return 0;
    if (provider->prefix_count >= limits->session_provides)
        return gb_fail_limit(error, "session_provides", (long long)limits->session_provides,
                             "prefixes that a session provides");
    if (provider->user->provides >= limits->user_provides)
        return gb_fail_limit(error, "user_provides", (long long)limits->user_provides,
                             "prefixes that a user's sessions provide");
    prefix = calloc(1, sizeof(*prefix) + length);
    if (!prefix)
        return gb_fail_memory(error);
    prefix->provider = provider;
    prefix->length = length;
    memcpy(prefix->text, text, length);
    gb_loads_begin(&all->loads, text, length);
    gb_list_append(&all->prefixes, &prefix->of_all);
    gb_list_append(&provider->prefixes, &prefix->of_provider);
    provider->prefix_count++;
    provider->user->provides++;
    gb_list_move(&all->nobodys, &all->to_ask);
    return 0;
}

static void prefix_free(struct gb_prefix *prefix)
{
    gb_loads_end(&prefix->provider->all->loads, prefix->text, prefix->length);
    gb_list_remove(&prefix->of_all);
    gb_list_remove(&prefix->of_provider);
    prefix->provider->prefix_count--;
    prefix->provider->user->provides--;
    free(prefix);
}

/* Has other providers found for names that this one was asked for by the prefix, and for all queued
   names: these may have another prefix of its, and then come back to it. */
static void ask_others(struct gb_provider *provider, const struct gb_prefix *prefix)
{
    struct gb_link *to_ask = &provider->all->to_ask;

    GB_LIST_EACH(&provider->asked, struct gb_missing, missing, turn) {
        if (missing->prefix_length != prefix->length ||
            memcmp(missing->name, prefix->text, prefix->length) != 0)
            continue;
        gb_list_remove(&missing->turn);
        gb_list_append(to_ask, &missing->turn);
        unask(missing);
    }
    GB_LIST_EACH(&provider->shares, struct gb_user_share, share, of_provider)
        detach_share(share, to_ask);
}

void gb_provider_end_prefix(struct gb_provider *provider, const char *text, size_t length)
{
    struct gb_prefix *prefix = prefix_of(provider, text, length);

    if (!prefix)
        return;
    ask_others(provider, prefix);
    prefix_free(prefix);
}

void gb_provider_end(struct gb_provider *provider)
{
    GB_LIST_EACH(&provider->prefixes, struct gb_prefix, prefix, of_provider) {
        ask_others(provider, prefix);
        prefix_free(prefix);
    }
}

struct gb_missing *gb_provider_request(const struct gb_provider *provider, uint64_t request)
{
    GB_LIST_EACH(&provider->asked, struct gb_missing, missing, turn) {
        if (missing->request == request)
            return missing;
    }
    return NULL;
}
