#include "daemon/serve/provider.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/config.h"
#include "daemon/serve/session.h"

void gb_providers_init(struct gb_providers *providers)
{
    gb_list_init(&providers->prefixes);
    gb_list_init(&providers->to_ask);
    gb_list_init(&providers->nobodys);
    /* A later daemon begins with higher numbers: a late answer to this one meets no request of it. */
    providers->last_request = (uint64_t)gb_wall_ms() << 10;
}

/* ---- what is told ---- */

static struct gb_writer *begin_notice(struct gb_provider *provider, const char *method,
                                      const struct gb_missing *missing)
{
    struct gb_writer *writer = &provider->session->server->event_writer;

    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, method, 0);
    gb_write_format(writer, "{\"request\":%" PRIu64 ",\"prefix\":", missing->request);
    gb_write_string(writer, missing->name, missing->prefix_length);
    return writer;
}

static void end_notice(struct gb_provider *provider, struct gb_writer *writer)
{
    gb_write_char(writer, '}');
    gb_rpc_end(writer);
    gb_session_send(provider->session, writer, NULL, 0);
}

/* The first that waits and is not the session; NULL. A session has only so many waits. */
static struct gb_session *asker(const struct gb_missing *missing, const struct gb_session *session)
{
    for (const struct gb_link *link = missing->asking.next; link != &missing->asking;
         link = link->next) {
        struct gb_awaited *awaited = GB_CONTAINER(link, struct gb_awaited, link);

        if (awaited->session != session)
            return awaited->session;
    }
    return NULL;
}

static void ask(struct gb_provider *provider, struct gb_missing *missing,
                const struct gb_session *by)
{
    struct gb_providers *providers = &provider->session->server->providers;
    struct gb_writer *writer;

    missing->provider = provider;
    missing->request = ++providers->last_request;
    missing->asked_ms = gb_now_ms();
    gb_list_append(&provider->asked, &missing->turn);
    provider->asked_count++;
    providers->wanted++;
    writer = begin_notice(provider, "wanted", missing);
    GB_WRITE_LITERAL(writer, ",\"name\":");
    gb_write_string(writer, missing->name, missing->name_length);
    gb_write_format(writer, ",\"uid\":%u,\"gid\":%u", by->user->uid, by->gid);
    end_notice(provider, writer);
}

bool gb_provider_lags(const struct gb_session *session)
{
    const struct gb_provider *provider = session->provider;

    return provider && !gb_list_empty(&provider->queued) && session->state == GB_SESSION_OPEN &&
           !session->doomed && provider->asked_count < session->server->limits->session_wanted;
}

void gb_provider_pump(struct gb_session *session)
{
    struct gb_provider *provider = session->provider;

    /* Whoever does not read is told no more, and is not thrown out for what others ask. */
    while (gb_provider_lags(session) &&
           gb_conn_output_bytes(&session->conn) <= GB_SESSION_SEND_BYTES) {
        struct gb_missing *missing = GB_CONTAINER(provider->queued.next, struct gb_missing, turn);
        const struct gb_session *by = asker(missing, session);

        gb_list_remove(&missing->turn);
        if (by)
            ask(provider, missing, by);
        else
            gb_provider_want(session->server, missing);
    }
}

/* ---- whom to ask ---- */

/* Of the longest prefix of the name, and of sessions with the same one the first that said it. Nobody
   is asked for what only itself waits for. */
static struct gb_prefix *find_prefix(struct gb_server *server, const struct gb_missing *missing)
{
    struct gb_prefix *best = NULL;

    GB_LIST_EACH(&server->providers.prefixes, link) {
        struct gb_prefix *prefix = GB_CONTAINER(link, struct gb_prefix, of_server);

        if (prefix->length <= missing->name_length && (!best || prefix->length > best->length) &&
            memcmp(prefix->text, missing->name, prefix->length) == 0 &&
            prefix->provider->session->state == GB_SESSION_OPEN &&
            asker(missing, prefix->provider->session))
            best = prefix;
    }
    return best;
}

static void find_provider(struct gb_server *server, struct gb_missing *missing)
{
    struct gb_prefix *prefix = NULL;

    gb_list_remove(&missing->turn);
    if (!gb_registry_find(&server->registry, missing->name, missing->name_length))
        prefix = find_prefix(server, missing);
    missing->by_nobody = !prefix;
    if (!prefix) {
        gb_list_append(&server->providers.nobodys, &missing->turn);
        return;
    }
    missing->prefix_length = prefix->length;
    gb_list_append(&prefix->provider->queued, &missing->turn);
    gb_provider_pump(prefix->provider->session);
}

void gb_providers_run(struct gb_server *server, uint64_t until)
{
    struct gb_link *to_ask = &server->providers.to_ask;

    while (!gb_list_empty(to_ask)) {
        find_provider(server, GB_CONTAINER(to_ask->next, struct gb_missing, turn));
        if (uv_hrtime() >= until)
            return;
    }
}

void gb_provider_want(struct gb_server *server, struct gb_missing *missing)
{
    if (!missing->by_nobody && gb_list_linked(&missing->turn))
        return;
    missing->by_nobody = false;
    gb_list_remove(&missing->turn);
    gb_list_append(&server->providers.to_ask, &missing->turn);
}

void gb_provider_over(struct gb_missing *missing, bool tell)
{
    struct gb_provider *provider = missing->provider;

    gb_list_remove(&missing->turn);
    missing->by_nobody = true;
    missing->provider = NULL;
    if (!provider)
        return;
    provider->asked_count--;
    if (tell)
        end_notice(provider, begin_notice(provider, "unwanted", missing));
    gb_provider_pump(provider->session);
}

/* ---- who provides what ---- */

static struct gb_prefix *prefix_of(const struct gb_session *session, const char *text,
                                   size_t length)
{
    if (!session->provider)
        return NULL;
    GB_LIST_EACH(&session->provider->prefixes, link) {
        struct gb_prefix *prefix = GB_CONTAINER(link, struct gb_prefix, of_provider);

        if (prefix->length == length && memcmp(prefix->text, text, length) == 0)
            return prefix;
    }
    return NULL;
}

int gb_provider_may(const struct gb_session *session, const char *prefix, size_t length,
                    struct gb_error *error)
{
    const struct gb_limits *limits = session->server->limits;

    if (!gb_session_is_admin(session) &&
        !gb_config_may_provide(session->server->config, session->user->uid, prefix))
        return gb_fail(error, GPUBUF_E_DENIED,
                       "uid %u may not provide names below \"%s\": gpubufd --provider %u:PREFIX "
                       "lets it",
                       session->user->uid, prefix, session->user->uid);
    if (prefix_of(session, prefix, length))
        return 0;
    if (session->provider && session->provider->prefix_count >= limits->session_provides)
        return gb_fail_limit(error, "session_provides", (long long)limits->session_provides,
                             "prefixes that a session provides");
    if (session->user->provides >= limits->user_provides)
        return gb_fail_limit(error, "user_provides", (long long)limits->user_provides,
                             "prefixes that a user's sessions provide");
    return 0;
}

static struct gb_provider *provider_of(struct gb_session *session)
{
    struct gb_provider *provider = session->provider;

    if (provider || !(provider = calloc(1, sizeof(*provider))))
        return provider;
    provider->session = session;
    gb_list_init(&provider->prefixes);
    gb_list_init(&provider->queued);
    gb_list_init(&provider->asked);
    return session->provider = provider;
}

int gb_provider_begin(struct gb_session *session, const char *text, size_t length)
{
    struct gb_providers *providers = &session->server->providers;
    struct gb_provider *provider = provider_of(session);
    struct gb_prefix *prefix;

    if (prefix_of(session, text, length))
        return 0;
    prefix = provider ? calloc(1, sizeof(*prefix) + length) : NULL;
    if (!prefix)
        return GPUBUF_E_NO_MEMORY;
    prefix->provider = provider;
    prefix->length = length;
    memcpy(prefix->text, text, length);
    gb_list_append(&providers->prefixes, &prefix->of_server);
    gb_list_append(&provider->prefixes, &prefix->of_provider);
    provider->prefix_count++;
    session->user->provides++;
    gb_list_move(&providers->nobodys, &providers->to_ask);
    return 0;
}

static void prefix_free(struct gb_prefix *prefix)
{
    gb_list_remove(&prefix->of_server);
    gb_list_remove(&prefix->of_provider);
    prefix->provider->prefix_count--;
    prefix->provider->session->user->provides--;
    free(prefix);
}

/* What it was asked for below the prefix is asked of others, and what is queued, which may be for another
   prefix, in the order of its turn. */
static void ask_others(struct gb_provider *provider, const struct gb_prefix *prefix)
{
    struct gb_link *to_ask = &provider->session->server->providers.to_ask;

    GB_LIST_EACH(&provider->asked, link) {
        struct gb_missing *missing = GB_CONTAINER(link, struct gb_missing, turn);

        if (missing->prefix_length != prefix->length ||
            memcmp(missing->name, prefix->text, prefix->length) != 0)
            continue;
        gb_list_remove(link);
        gb_list_append(to_ask, link);
        missing->provider = NULL;
        provider->asked_count--;
    }
    gb_list_move(&provider->queued, to_ask);
}

void gb_provider_end_prefix(struct gb_session *session, const char *text, size_t length)
{
    struct gb_prefix *prefix = prefix_of(session, text, length);

    if (!prefix)
        return;
    ask_others(session->provider, prefix);
    prefix_free(prefix);
}

void gb_provider_end(struct gb_session *session)
{
    if (!session->provider)
        return;
    GB_LIST_EACH(&session->provider->prefixes, link) {
        struct gb_prefix *prefix = GB_CONTAINER(link, struct gb_prefix, of_provider);

        ask_others(session->provider, prefix);
        prefix_free(prefix);
    }
    free(session->provider);
    session->provider = NULL;
}

struct gb_missing *gb_provider_request(const struct gb_session *session, uint64_t request)
{
    if (!session->provider)
        return NULL;
    GB_LIST_EACH(&session->provider->asked, link) {
        struct gb_missing *missing = GB_CONTAINER(link, struct gb_missing, turn);

        if (missing->request == request)
            return missing;
    }
    return NULL;
}
