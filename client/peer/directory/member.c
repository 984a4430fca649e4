#include "client/peer/directory/member.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE 1000 /* keys of one answer to a listing */
#define AGAIN_MS 1000
#define GIVE_BACK_MS 5000 /* a busy etcd answers within it; then the lease ends by itself */

static void list_begin(struct gb_peer_member *member);
static void watch_begin(struct gb_peer_member *member);

/* Counts a machine's sleep too, as the lease does. */
static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t gb_peer_member_unix_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* How long after a renewal was sent this node still counts on its lease. */
static int64_t trusted_ms(const struct gb_peer_member *member)
{
    return member->lease_ms - member->lease_ms / 5;
}

static bool is_trusted(const struct gb_peer_member *member)
{
    return member->lease && now_ms() < member->renewed_ms + trusted_ms(member);
}

bool gb_peer_member_is_in(const struct gb_peer_member *member)
{
    return member->state == GB_PEER_IN && is_trusted(member);
}

/* ---- parts of requests and answers ---- */

void gb_peer_member_write_key(struct gb_writer *writer, const struct gb_peer_member *member,
                              const char *kind, const char *name)
{
    struct gb_writer key;

    gb_writer_init(&key, 0);
    gb_write_text(&key, member->root);
    gb_write_text(&key, kind);
    gb_write_text(&key, name);
    gb_peer_etcd_write_bytes(writer, "key", key.data, key.length);
    writer->failed |= key.failed;
    gb_writer_end(&key);
}

void gb_peer_member_write_put(struct gb_writer *writer, const struct gb_peer_member *member,
                              const char *kind, const char *name, struct gb_writer *value)
{
    GB_WRITE_LITERAL(writer, "{\"request_put\":{");
    gb_peer_member_write_key(writer, member, kind, name);
    GB_WRITE_LITERAL(writer, ",");
    gb_peer_etcd_write_bytes(writer, "value", value->data, value->length);
    gb_write_pattern(writer, ",'lease':'%" PRIu64 "'}}", member->lease);
    writer->failed |= value->failed;
    gb_writer_end(value);
}

void gb_peer_member_write_range(struct gb_writer *writer, const struct gb_peer_member *member,
                                const char *kind, const char *name)
{
    GB_WRITE_LITERAL(writer, "{\"request_range\":{");
    gb_peer_member_write_key(writer, member, kind, name);
    GB_WRITE_LITERAL(writer, "}}");
}

void gb_peer_member_write_delete(struct gb_writer *writer, const struct gb_peer_member *member,
                                 const char *kind, const char *name)
{
    GB_WRITE_LITERAL(writer, "{\"request_delete_range\":{");
    gb_peer_member_write_key(writer, member, kind, name);
    GB_WRITE_LITERAL(writer, "}}");
}

void gb_peer_member_write_compare(struct gb_writer *writer, const struct gb_peer_member *member,
                                  const char *kind, const char *name, uint64_t revision)
{
    gb_write_pattern(writer, "{'target':'MOD','mod_revision':'%" PRIu64 "',", revision);
    gb_peer_member_write_key(writer, member, kind, name);
    GB_WRITE_LITERAL(writer, "}");
}

/* Everything below the root from `key` on: its end is the root with the character after '/'. */
static void write_range(struct gb_writer *writer, const struct gb_peer_member *member,
                        const char *key, size_t length)
{
    char end[sizeof(member->root) + 2];
    int end_length = snprintf(end, sizeof(end), "%s0", member->root);

    gb_peer_etcd_write_bytes(writer, "key", key, length);
    GB_WRITE_LITERAL(writer, ",");
    gb_peer_etcd_write_bytes(writer, "range_end", end, (size_t)end_length);
}

static struct gb_json first_of(struct gb_json array)
{
    struct gb_json item = {0};
    struct gb_json_walk walk;

    if (!array.text || gb_json_type(array) != GB_JSON_ARRAY)
        return item;
    walk = gb_json_walk(array);
    if (!gb_json_next(&walk, NULL, &item))
        item.text = NULL;
    return item;
}

struct gb_json gb_peer_member_found(struct gb_json answer)
{
    struct gb_json responses = gb_peer_etcd_member(answer, "responses");

    if (responses.text)
        answer = gb_peer_etcd_member(first_of(responses), "response_range");
    return first_of(gb_peer_etcd_member(answer, "kvs"));
}

/* ---- the view ---- */

/* Memory that is out leaves a name unknown, which the next listing mends. */
void gb_peer_member_apply(struct gb_peer_member *member, const char *key, const char *value,
                          size_t value_length, uint64_t revision, uint64_t lease)
{
    size_t root = strlen(member->root);
    struct gb_peer_view_key taken = {.value = value, .value_length = value_length};
    struct gb_peer_entry *entry = NULL;

    if (strncmp(key, member->root, root) != 0 || key[root] != '/')
        return;
    taken.key = key + root + 1;
    taken.revision = revision;
    taken.lease = lease;
    if (gb_peer_view_apply(&member->view, &taken, &entry) < 0 || !entry)
        return;
    if (member->fragmented && !entry->revision) {
        gb_list_remove(&entry->lost); /* it may be there from before */
        gb_list_append(&member->lost, &entry->lost);
        return;
    }
    member->events.changed(member->events.user, entry);
    gb_peer_view_tidy(&member->view, entry);
}

/* All of what etcd told at once is known: the end of a name's node, too, which decides what becomes
   of copies. */
static void tell_lost(struct gb_peer_member *member)
{
    struct gb_peer_entry *entry;

    member->fragmented = false;
    while ((entry = GB_LIST_FIRST(&member->lost, struct gb_peer_entry, lost))) {
        gb_list_remove(&entry->lost);
        if (!entry->revision)
            member->events.changed(member->events.user, entry);
        gb_peer_view_tidy(&member->view, entry);
    }
}

void gb_peer_member_apply_kv(struct gb_peer_member *member, struct gb_json kv, bool gone,
                             struct gb_pool *pool)
{
    uint64_t revision = gb_peer_etcd_number(gb_peer_etcd_member(kv, "mod_revision"));
    size_t key_length, value_length = 0;
    char *key = gb_peer_etcd_bytes(gb_peer_etcd_member(kv, "key"), pool, &key_length);
    char *value = NULL;

    if (!key || strlen(key) != key_length || revision <= member->watched)
        return;
    if (!gone)
        value = gb_peer_etcd_bytes(gb_peer_etcd_member(kv, "value"), pool, &value_length);
    gb_peer_member_apply(member, key, value, value_length, revision,
                         gb_peer_etcd_number(gb_peer_etcd_member(kv, "lease")));
}

/* ---- leaving ---- */

static void cancel_requests(struct gb_peer_member *member)
{
    gb_peer_etcd_cancel(member->joining);
    gb_peer_etcd_cancel(member->renewal);
    gb_peer_etcd_cancel(member->watch);
    member->joining = member->renewal = member->watch = NULL;
}

static void leave(struct gb_peer_member *member)
{
    bool forgot = member->state == GB_PEER_IN || member->state == GB_PEER_LISTING;

    cancel_requests(member);
    if (member->lease)
        member->old_lease = member->lease;
    member->lease = 0;
    member->state = GB_PEER_OUT;
    member->again_ms = now_ms() + AGAIN_MS;
    member->events.left(member->events.user, forgot);
}

void gb_peer_member_leave(struct gb_peer_member *member, const char *format, ...)
{
    va_list arguments;

    member->why.code = GPUBUF_E_UNAVAILABLE;
    va_start(arguments, format);
    vsnprintf(member->why.message, sizeof(member->why.message), format, arguments);
    va_end(arguments);
    leave(member);
}

/* Asks for the next step of joining. */
static void ask(struct gb_peer_member *member, const char *method, struct gb_writer *body,
                gb_peer_etcd_cb callback)
{
    member->joining = gb_peer_etcd_call(member->etcd, method, body, callback, member);
    if (!member->joining)
        gb_peer_member_leave(member, "out of memory");
}

/* ---- the listing and the watch ---- */

static void on_unlisted(void *user, struct gb_peer_entry *entry)
{
    struct gb_peer_member *member = user;

    member->events.changed(member->events.user, entry);
}

static void list_end(struct gb_peer_member *member)
{
    gb_peer_view_listed(&member->view, on_unlisted, member);
    tell_lost(member);
    member->watched = member->listed;
    member->state = GB_PEER_IN;
    member->unwatched_ms = now_ms();
    watch_begin(member);
    member->events.joined(member->events.user);
}

static void on_page(void *user, int code, struct gb_json value, struct gb_pool *pool,
                    const struct gb_error *error);

static void list_page(struct gb_peer_member *member, const char *key, size_t length)
{
    struct gb_writer body;

    gb_writer_init(&body, 0);
    gb_write_pattern(&body, "{'limit':'%d','revision':'%" PRIu64 "',", PAGE, member->listed);
    write_range(&body, member, key, length);
    GB_WRITE_LITERAL(&body, "}");
    ask(member, "kv/range", &body, on_page);
}

static void on_page(void *user, int code, struct gb_json value, struct gb_pool *pool,
                    const struct gb_error *error)
{
    struct gb_peer_member *member = user;
    struct gb_json kvs = gb_peer_etcd_member(value, "kvs"), kv, last = {0};
    struct gb_json_walk walk;
    size_t length;
    char *key;

    member->joining = NULL;
    if (code < 0) {
        gb_peer_member_leave(member, "%s", error->message);
        return;
    }
    if (!member->listed)
        member->listed = gb_peer_etcd_revision(value);
    if (kvs.text && gb_json_type(kvs) == GB_JSON_ARRAY) {
        walk = gb_json_walk(kvs);
        while (gb_json_next(&walk, NULL, &kv)) {
            gb_peer_member_apply_kv(member, kv, false, pool);
            last = kv;
        }
    }
    if (!gb_peer_etcd_is_true(gb_peer_etcd_member(value, "more"))) {
        list_end(member);
        return;
    }
    key = gb_peer_etcd_bytes(gb_peer_etcd_member(last, "key"), pool, &length);
    if (key)
        list_page(member, key, length + 1); /* from the key after it: the same and a NUL */
    else
        gb_peer_member_leave(member, "etcd at %s: a page of a listing has no keys",
                             gb_peer_etcd_endpoint(member->etcd));
}

static void list_begin(struct gb_peer_member *member)
{
    char key[sizeof(member->root) + 1];
    int length = snprintf(key, sizeof(key), "%s/", member->root);

    member->state = GB_PEER_LISTING;
    member->listed = member->watched = 0;
    gb_peer_view_list(&member->view);
    list_page(member, key, (size_t)length);
}

/* Lists anew under the same lease. */
static void watch_compacted(struct gb_peer_member *member)
{
    gb_peer_etcd_cancel(member->watch);
    member->watch = NULL;
    gb_fail(&member->why, GPUBUF_E_UNAVAILABLE,
            "etcd compacted changes that this machine had not read");
    member->state = GB_PEER_LISTING;
    member->events.left(member->events.user, false);
    list_begin(member);
}

/* Takes it in if it is of a node, or of anything else, as `nodes` says. */
static void watch_event(struct gb_peer_member *member, struct gb_json event, bool nodes,
                        struct gb_pool *pool, uint64_t *newest)
{
    struct gb_json kv = gb_peer_etcd_member(event, "kv"), type = gb_peer_etcd_member(event, "type");
    uint64_t revision = gb_peer_etcd_number(gb_peer_etcd_member(kv, "mod_revision"));
    size_t root = strlen(member->root), length;
    char *key = gb_peer_etcd_bytes(gb_peer_etcd_member(kv, "key"), pool, &length);

    if (!key || (length > root && strncmp(key + root, "/nodes/", 7) == 0) != nodes)
        return;
    gb_peer_member_apply_kv(member, kv, type.text && gb_json_is(type, "DELETE"), pool);
    if (revision > *newest)
        *newest = revision;
}

static void on_watched(void *user, int code, struct gb_json value, struct gb_pool *pool,
                       const struct gb_error *error)
{
    struct gb_peer_member *member = user;
    struct gb_json result = gb_peer_etcd_member(value, "result"), event;
    struct gb_json events = gb_peer_etcd_member(result, "events");
    struct gb_json_walk walk;
    uint64_t newest = member->watched;
    bool fragment = gb_peer_etcd_is_true(gb_peer_etcd_member(result, "fragment"));
    int nodes;

    if (code < 0) { /* the tick begins another */
        member->watch = NULL;
        member->watching = false;
        member->unwatched_ms = now_ms();
        member->why = *error;
        return;
    }
    if (gb_peer_etcd_number(gb_peer_etcd_member(result, "compact_revision"))) {
        watch_compacted(member);
        return;
    }
    if (gb_peer_etcd_is_true(gb_peer_etcd_member(result, "canceled"))) {
        gb_peer_member_leave(member, "etcd at %s has ended the watch", member->watched_at);
        return;
    }
    member->watching = true;
    if (!events.text || gb_json_type(events) != GB_JSON_ARRAY)
        return;
    /* In the order of keys, a node's end comes after its names', maybe in a later fragment. */
    member->fragmented |= fragment;
    for (nodes = 1; nodes >= 0; nodes--) {
        walk = gb_json_walk(events);
        while (gb_json_next(&walk, NULL, &event))
            watch_event(member, event, nodes, pool, &newest);
    }
    if (fragment)
        return; /* others may have events of the same revision */
    member->watched = newest;
    tell_lost(member);
}

static void watch_begin(struct gb_peer_member *member)
{
    char key[sizeof(member->root) + 1];
    int length = snprintf(key, sizeof(key), "%s/", member->root);
    struct gb_writer body;

    gb_peer_etcd_cancel(member->watch);
    if (member->watching)
        member->unwatched_ms = now_ms();
    member->watching = false;
    member->watched_at = gb_peer_etcd_endpoint(member->etcd);
    gb_writer_init(&body, 0);
    GB_WRITE_LITERAL(&body, "{\"create_request\":{");
    write_range(&body, member, key, (size_t)length);
    gb_write_pattern(&body, ",'start_revision':'%" PRIu64 "','fragment':true}}",
                     member->watched + 1);
    member->watch = gb_peer_etcd_stream(member->etcd, "watch", &body, on_watched, member);
}

/* ---- joining ---- */

static void on_entered(void *user, int code, struct gb_json value, struct gb_pool *pool,
                       const struct gb_error *error)
{
    struct gb_peer_member *member = user;
    struct gb_json kv = gb_peer_member_found(value);
    uint64_t lease = gb_peer_etcd_number(gb_peer_etcd_member(kv, "lease"));
    size_t length;
    char *other;

    member->joining = NULL;
    if (code < 0) {
        gb_peer_member_leave(member, "%s", error->message);
        return;
    }
    if (!gb_peer_etcd_is_true(gb_peer_etcd_member(value, "succeeded")) && lease != member->lease) {
        other = gb_peer_etcd_bytes(gb_peer_etcd_member(kv, "value"), pool, &length);
        gb_peer_member_leave(
            member,
            "the node name \"%s\" is in use (%.200s), by another machine or until the "
            "lease ends of a peer that ran here before",
            member->node, other ? other : "?");
        return;
    }
    list_begin(member);
}

static void enter(struct gb_peer_member *member)
{
    struct gb_writer body, value;

    gb_writer_init(&value, 0);
    gb_write_pattern(&value, "{'host':%s,'port':%u}", member->host, member->port);
    gb_writer_init(&body, 0);
    GB_WRITE_LITERAL(&body, "{\"compare\":[");
    gb_peer_member_write_compare(&body, member, "/nodes/", member->node, 0);
    GB_WRITE_LITERAL(&body, "],\"success\":[");
    gb_peer_member_write_put(&body, member, "/nodes/", member->node, &value);
    GB_WRITE_LITERAL(&body, "],\"failure\":[");
    gb_peer_member_write_range(&body, member, "/nodes/", member->node);
    GB_WRITE_LITERAL(&body, "]}");
    ask(member, "kv/txn", &body, on_entered);
}

static void on_granted(void *user, int code, struct gb_json value, struct gb_pool *pool,
                       const struct gb_error *error)
{
    struct gb_peer_member *member = user;
    uint64_t lease = gb_peer_etcd_number(gb_peer_etcd_member(value, "ID"));
    uint64_t ttl = gb_peer_etcd_number(gb_peer_etcd_member(value, "TTL"));

    member->joining = NULL;
    if (code < 0 || !lease || !ttl || ttl > 3600) {
        gb_peer_member_leave(member, "%s",
                             code < 0 ? error->message : "etcd gave a lease without a time");
        return;
    }
    member->lease = lease;
    member->lease_ms = (int64_t)ttl * 1000;
    member->renewed_ms = member->asked_ms; /* when it was asked for */
    enter(member);
}

static void grant(struct gb_peer_member *member)
{
    struct gb_writer body;

    gb_writer_init(&body, 0);
    gb_write_format(&body, "{\"TTL\":\"%lld\"}", (long long)member->ttl_ms / 1000);
    member->asked_ms = now_ms();
    ask(member, "lease/grant", &body, on_granted);
}

static void on_revoked(void *user, int code, struct gb_json value, struct gb_pool *pool,
                       const struct gb_error *error)
{
    struct gb_peer_member *member = user;

    member->joining = NULL;
    if (code < 0 && code != GPUBUF_E_NOT_FOUND) {
        gb_peer_member_leave(member, "%s", error->message);
        return;
    }
    member->old_lease = 0;
    grant(member);
}

static void write_id(struct gb_writer *body, uint64_t lease)
{
    gb_writer_init(body, 0);
    gb_write_format(body, "{\"ID\":\"%llu\"}", (unsigned long long)lease);
}

/* All that this node wrote under its old lease ends before anything is written under a new one. */
static void join_begin(struct gb_peer_member *member)
{
    struct gb_writer body;

    member->state = GB_PEER_JOINING;
    if (!member->old_lease) {
        grant(member);
        return;
    }
    write_id(&body, member->old_lease);
    ask(member, "lease/revoke", &body, on_revoked);
}

/* ---- renewing ---- */

static void on_renewed(void *user, int code, struct gb_json value, struct gb_pool *pool,
                       const struct gb_error *error)
{
    struct gb_peer_member *member = user;
    struct gb_json result = gb_peer_etcd_member(value, "result");
    uint64_t ttl = gb_peer_etcd_number(gb_peer_etcd_member(result, "TTL"));

    member->renewal = NULL;
    if (code < 0) { /* the tick asks again, as long as there is time */
        member->why = *error;
        return;
    }
    if (!ttl) {
        gb_peer_member_leave(member, "the lease had ended");
        return;
    }
    member->renewed_ms = member->asked_ms;
    if (member->watching)
        member->why.code = 0;
    if (member->state == GB_PEER_IN && member->watched_at != gb_peer_etcd_endpoint(member->etcd))
        watch_begin(member);
}

static void renew(struct gb_peer_member *member)
{
    struct gb_writer body;

    write_id(&body, member->lease);
    member->asked_ms = now_ms();
    member->renewal = gb_peer_etcd_call(member->etcd, "lease/keepalive", &body, on_renewed, member);
}

/* When the next renewal is due: soon after one that failed. */
static int64_t renewal_ms(const struct gb_peer_member *member)
{
    bool failed = member->renewed_ms != member->asked_ms;

    return member->asked_ms + member->lease_ms * (failed ? 1 : 3) / 10;
}

static void on_tick(uv_timer_t *timer)
{
    struct gb_peer_member *member = timer->data;
    int64_t now = now_ms();
    struct gb_error why;

    if (member->state == GB_PEER_OUT) {
        if (now >= member->again_ms)
            join_begin(member);
        return;
    }
    if (!member->lease)
        return;
    why = member->why;
    if (!is_trusted(member)) {
        gb_peer_member_leave(member, "the lease could not be renewed for %lld s: %.400s",
                             (long long)(now - member->renewed_ms) / 1000,
                             why.code ? why.message
                                      : "this machine has slept, or the peer was stopped");
        return;
    }
    if (!member->renewal && now >= renewal_ms(member))
        renew(member);
    if (member->state != GB_PEER_IN)
        return;
    if (!member->watching && now >= member->unwatched_ms + trusted_ms(member)) {
        gb_peer_member_leave(member, "there is no watch: %.400s",
                             why.code ? why.message : "etcd does not answer");
        return;
    }
    if (!member->watch)
        watch_begin(member);
    member->events.ticked(member->events.user);
}

/* ---- beginning ---- */

/* Into room for `size`; a name of a node becomes part of keys, so it must have no '/'. */
static int set_text(char *to, size_t size, const char *text, const char *what, bool is_node,
                    struct gb_error *error)
{
    size_t i, length = text ? strlen(text) : 0;

    if (!length || length >= size)
        return gb_fail(error, GPUBUF_E_INVALID, "%s has %zu characters, expected 1 to %zu", what,
                       length, size - 1);
    for (i = 0; i < length; i++)
        if (is_node && !isalnum((unsigned char)text[i]) && !strchr(".-_", text[i]))
            return gb_fail(error, GPUBUF_E_INVALID,
                           "%s \"%s\" has other characters than letters, digits, '.', '-', '_'",
                           what, text);
    memcpy(to, text, length + 1);
    return 0;
}

int gb_peer_member_set_texts(struct gb_peer_member *member, const char *root, const char *node,
                             const char *host, struct gb_error *error)
{
    int r = set_text(member->root, sizeof(member->root), root, "the root", false, error);

    if (r == 0 && (root[0] != '/' || root[strlen(root) - 1] == '/'))
        r = gb_fail(error, GPUBUF_E_INVALID, "the root \"%s\" must begin with '/' and not end so",
                    root);
    if (r == 0)
        r = set_text(member->node, sizeof(member->node), node, "the node's name", true, error);
    if (r == 0)
        r = set_text(member->host, sizeof(member->host), host, "the node's host", false, error);
    return r;
}

void gb_peer_member_begin(struct gb_peer_member *member, uv_loop_t *loop)
{
    uint64_t period = (uint64_t)member->ttl_ms / 40;

    gb_fail(&member->why, GPUBUF_E_UNAVAILABLE, "etcd has not answered yet");
    member->state = GB_PEER_OUT;
    member->tick.data = member;
    uv_timer_init(loop, &member->tick);
    uv_timer_start(&member->tick, on_tick, 0, period ? period : 1);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer_member *member = handle->data;

    gb_peer_view_end(&member->view);
    member->events.closed(member->events.user);
}

/* A turn later, since it comes from a callback of etcd's. */
static void on_close(uv_timer_t *timer)
{
    struct gb_peer_member *member = timer->data;

    gb_peer_etcd_destroy(member->etcd);
    gb_peer_batch_end(&member->puts);
    gb_peer_batch_end(&member->deletes);
    uv_close((uv_handle_t *)&member->tick, on_closed);
}

static void on_given_back(void *user, int code, struct gb_json value, struct gb_pool *pool,
                          const struct gb_error *error)
{
    struct gb_peer_member *member = user;

    uv_timer_start(&member->tick, on_close, 0, 0);
}

void gb_peer_member_close(struct gb_peer_member *member)
{
    uint64_t lease = member->lease ? member->lease : member->old_lease;
    struct gb_writer body;

    cancel_requests(member);
    member->state = GB_PEER_LEAVING;
    member->lease = 0;
    bool asked = false;
    if (lease) {
        write_id(&body, lease);
        asked = gb_peer_etcd_call(member->etcd, "lease/revoke", &body, on_given_back, member);
    }
    /* A dead etcd keeps nobody: then the lease ends by itself. */
    uv_timer_start(&member->tick, on_close, asked ? GIVE_BACK_MS : 0, 0);
}
