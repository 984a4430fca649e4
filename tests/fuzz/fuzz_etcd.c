/*
 * Any bytes as etcd's answers to a peer that joins, lists and watches: they make no harm, and what
 * the view tells of them holds together.
 *
 * Each line of the input answers one request: its first character says which (j: the one by which
 * it joins or lists; r: the renewal of the lease; w: a line of the watch; in capitals: it fails; t:
 * the tick), the rest is the answer, JSON or not.
 */
#include "client/peer/directory/member.c"
#include "demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- in place of libcurl: requests that the input answers ---- */

struct gb_peer_etcd_call {
    gb_peer_etcd_cb callback;
    bool under_way;
};

static struct gb_peer_etcd_call calls[3]; /* of member->joining, renewal, watch */

struct gb_peer_etcd_call *__wrap_gb_peer_etcd_call(struct gb_peer_etcd *etcd, const char *method,
                                                   struct gb_writer *body, gb_peer_etcd_cb callback,
                                                   void *user);
struct gb_peer_etcd_call *__wrap_gb_peer_etcd_stream(struct gb_peer_etcd *etcd, const char *method,
                                                     struct gb_writer *body,
                                                     gb_peer_etcd_cb callback, void *user);
void __wrap_gb_peer_etcd_cancel(struct gb_peer_etcd_call *call);
const char *__wrap_gb_peer_etcd_endpoint(const struct gb_peer_etcd *etcd);

/* Each request is JSON, whatever was answered before. */
static struct gb_peer_etcd_call *begin(struct gb_peer_etcd_call *call, struct gb_writer *body,
                                       gb_peer_etcd_cb callback)
{
    struct gb_pool pool = {0};
    struct gb_json value;
    struct gb_error error;

    DEMAND(!body->failed && !call->under_way);
    DEMAND(gb_json_check(body->data, body->length, &pool, &value, &error) == 0);
    gb_pool_end(&pool);
    gb_writer_end(body);
    *call = (struct gb_peer_etcd_call){callback, true};
    return call;
}

struct gb_peer_etcd_call *__wrap_gb_peer_etcd_call(struct gb_peer_etcd *etcd, const char *method,
                                                   struct gb_writer *body, gb_peer_etcd_cb callback,
                                                   void *user)
{
    return begin(&calls[strcmp(method, "lease/keepalive") == 0 ? 1 : 0], body, callback);
}

struct gb_peer_etcd_call *__wrap_gb_peer_etcd_stream(struct gb_peer_etcd *etcd, const char *method,
                                                     struct gb_writer *body,
                                                     gb_peer_etcd_cb callback, void *user)
{
    return begin(&calls[2], body, callback);
}

void __wrap_gb_peer_etcd_cancel(struct gb_peer_etcd_call *call)
{
    if (call)
        call->under_way = false;
}

const char *__wrap_gb_peer_etcd_endpoint(const struct gb_peer_etcd *etcd)
{
    return "http://etcd";
}

/* ---- the member's owner ---- */

static unsigned joined, left;

static void fuzz_joined(void *user)
{
    const struct gb_peer_member *member = user;

    DEMAND(member->state == GB_PEER_IN && member->lease);
    joined++;
}

static void fuzz_left(void *user, bool forgot)
{
    const struct gb_peer_member *member = user;

    DEMAND(member->state != GB_PEER_IN);
    left++;
}

static void fuzz_changed(void *user, struct gb_peer_entry *entry)
{
    DEMAND(entry->name && strlen(entry->name) > 0);
    DEMAND(!entry->revision == !entry->node);
}

static void fuzz_ticked(void *user)
{
    const struct gb_peer_member *member = user;

    DEMAND(member->state == GB_PEER_IN);
}

static void check_entry(void *item, void *user)
{
    const struct gb_peer_entry *entry = item;
    struct gb_peer_place places[GB_PEER_PLACES_MOST];
    size_t count = 0;

    DEMAND(entry->revision || entry->copy_count || gb_list_linked(&entry->lost));
    if (entry->revision)
        count = gb_peer_view_places(entry, "self", 1, places, GB_PEER_PLACES_MOST);
    DEMAND(count <= GB_PEER_PLACES_MOST);
    for (size_t i = 0; i < count; i++) {
        DEMAND(places[i].revision == entry->revision && places[i].version > 0);
        DEMAND(places[i].port > 0 && strcmp(places[i].origin, entry->node->name) == 0);
    }
}

static void check_node(void *user, const char *node, const char *host, uint16_t port)
{
    DEMAND(strlen(node) < GB_PEER_NODE_BYTES && strlen(host) < GB_PEER_HOST_BYTES && port > 0);
}

/* ---- a line ---- */

static void answer(struct gb_peer_member *member, struct gb_peer_etcd_call *call, bool fails,
                   bool stream, const char *text, size_t length)
{
    struct gb_pool pool = {0};
    struct gb_json value = {0};
    struct gb_error error;
    int r = fails ? gb_fail(&error, GPUBUF_E_UNAVAILABLE, "etcd is away")
                  : gb_json_check(text, length, &pool, &value, &error);

    if (r < 0) {
        value.text = NULL;
        error.code = r = GPUBUF_E_UNAVAILABLE;
    }
    if (call->under_way) {
        call->under_way = stream && r == 0;
        call->callback(member, r, value, &pool, &error);
    }
    gb_pool_end(&pool);
}

static void take_line(struct gb_peer_member *member, const char *line, size_t length)
{
    static const char kinds[] = "jrwJRW";
    const char *kind = length ? memchr(kinds, line[0], sizeof(kinds) - 1) : NULL;

    if (kind)
        answer(member, &calls[(kind - kinds) % 3], kind - kinds >= 3, (kind - kinds) % 3 == 2,
               line + 1, length - 1);
    else if (length && line[0] == 't')
        on_tick(&member->tick);
    gb_peer_view_each(&member->view, check_entry, NULL);
    gb_peer_view_nodes(&member->view, check_node, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_peer_member member = {
        .root = "/g", .node = "self", .host = "h", .port = 1, .ttl_ms = 10000};
    char *text = malloc(size + 1);

    DEMAND(text);
    memcpy(text, data, size);
    text[size] = '\0';
    memset(calls, 0, sizeof(calls));
    joined = left = 0;
    member.tick.data = &member;
    member.events = (struct gb_peer_member_events){&member,      fuzz_joined, fuzz_left,
                                                   fuzz_changed, fuzz_ticked, NULL};
    member.state = GB_PEER_OUT;
    join_begin(&member);
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + size - line));
        if (!end)
            end = text + size;
        take_line(&member, line, (size_t)(end - line));
        member.again_ms = 0; /* the next tick joins again */
    }
    gb_peer_view_end(&member.view);
    free(text);
    return 0;
}
