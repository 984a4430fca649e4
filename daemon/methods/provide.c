/* provide and decline: a session makes names that others wait for, or declines to. */
#include <inttypes.h>
#include <string.h>

#include "daemon/methods/call.h"

struct provide_params {
    struct gb_string prefix;
    bool end;
};

static const struct gb_field provide_fields[] = {
    GB_FIELD(struct provide_params, prefix, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0,
             GB_LIMIT(name_bytes)),
    GB_FIELD(struct provide_params, end, GB_FIELD_BOOL, 0, 0, 0),
};

static int handle_provide(struct gb_call *call, const void *p)
{
    const struct provide_params *params = p;
    const struct gb_string *prefix = &params->prefix;
    struct gb_session *session = call->session;
    int r = 0;

    if (params->end)
        gb_provider_end_prefix(&session->provider, prefix->text, prefix->length);
    else if (!gb_session_may_provide(session, prefix->text))
        r = gb_fail(&call->error, GPUBUF_E_DENIED,
                    "uid %u may not provide names below \"%s\": gpubufd --provider %u:PREFIX "
                    "lets it",
                    session->user->uid, prefix->text, session->user->uid);
    else
        r = gb_provider_begin(&session->provider, prefix->text, prefix->length, &call->error);
    return r < 0 ? r : gb_call_empty(call);
}

const struct gb_method gb_method_provide = {GB_METHOD_ROW(
    "provide", GB_METHOD_APART, provide_fields, handle_provide, struct provide_params)};

struct decline_params {
    uint64_t request;
    struct gb_string kind, message;
};

static const struct gb_field decline_fields[] = {
    GB_FIELD(struct decline_params, request, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct decline_params, kind, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct decline_params, message, GB_FIELD_STRING, 0, 0, GB_LIMIT(decline_bytes)),
};

static int handle_decline(struct gb_call *call, const void *p)
{
    static const char *const kinds[] = {"not_found", "unavailable", "timeout", NULL};
    static const int codes[] = {GPUBUF_E_NOT_FOUND, GPUBUF_E_UNAVAILABLE, GPUBUF_E_TIMEOUT};
    const struct decline_params *params = p;
    const char *message =
        params->message.length ? params->message.text : "its provider has declined";
    struct gb_missing *missing;
    int kind = gb_call_choose(call, "kind", &params->kind, 0, kinds);

    if (kind < 0)
        return kind;
    missing = gb_provider_request(&call->session->provider, params->request);
    if (!missing)
        return gb_fail(&call->error, GPUBUF_E_NOT_FOUND,
                       "this session has no request %" PRIu64 " to answer, or it is over",
                       params->request);
    if (gb_missing_decline(&call->server->missings, missing, codes[kind], message) < 0)
        return gb_call_no_memory(call);
    return gb_call_empty(call);
}

const struct gb_method gb_method_decline = {GB_METHOD_ROW(
    "decline", GB_METHOD_APART, decline_fields, handle_decline, struct decline_params)};
