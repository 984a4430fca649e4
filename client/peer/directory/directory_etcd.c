#include "client/peer/directory/directory_etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/directory/announce.h"
#include "client/peer/directory/member.h"

/* Transactions of one publish: after these it has lost against somebody. */
#define PUBLISH_MOST 4

enum kind { FIND, PUBLISH, WITHDRAW };

/* A request of the interface until its callback; its caller may have cancelled it. */
struct op {
    struct gb_link of_directory;
    struct directory *directory;
    enum kind kind;
    union {
        gb_peer_found_cb found;
        gb_peer_published_cb published;
    } callback;
    void *user;
    struct gb_peer_etcd_call *call; /* of a find */
    struct gb_peer_change *change;  /* of the others */
    uint64_t version, bytes, serial, since_ms;
    uint64_t revision; /* that the key must have */
    unsigned tries;
    bool ready; /* to be ended with `status` by on_soon */
    uint64_t turn;
    int status;
    struct gb_error error;
    char name[];
};

struct directory {
    struct gb_peer_directory base;
    struct gb_peer_member member;
    uv_timer_t soon;
    uint64_t serial, turn, starts;
    bool unswept; /* something may be left to sweep */
    struct gb_peer_announcer announcer;
    struct gb_error said; /* the last reason that events.state had; none: the directory is there */
    struct gb_link ops;   /* struct op, newer ones first */
};

/* ---- requests of the interface ---- */

/* NULL: memory is out. */
static struct op *op_create(struct directory *directory, enum kind kind, const char *name,
                            void *user)
{
    struct op *op = calloc(1, sizeof(*op) + strlen(name) + 1);

    if (!op)
        return NULL;
    op->directory = directory;
    op->kind = kind;
    strcpy(op->name, name);
    op->user = user;
    op->turn = directory->turn;
    gb_list_prepend(&directory->ops, &op->of_directory);
    return op;
}

static void op_free(struct op *op)
{
    gb_list_remove(&op->of_directory);
    gb_peer_etcd_cancel(op->call);
    gb_peer_change_cancel(op->change);
    free(op);
}

static void on_soon(uv_timer_t *timer);
static void sweep(struct directory *directory, struct gb_peer_entry *entry);

/* Ends it in a turn of the loop to come. */
static void op_later(struct op *op, int status)
{
    op->status = status;
    op->ready = true;
    uv_timer_start(&op->directory->soon, on_soon, 0, 0);
}

static int fail_unavailable(const struct directory *directory, struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_UNAVAILABLE, "the cluster's names cannot be read: %.400s",
                   directory->member.state == GB_PEER_IN ? "the lease could not be renewed"
                                                         : directory->member.why.message);
}

static void op_later_unavailable(struct op *op)
{
    op_later(op, fail_unavailable(op->directory, &op->error));
}

static void find_finish(struct op *op)
{
    struct directory *directory = op->directory;
    struct gb_peer_entry *entry = gb_peer_view_entry(&directory->member.view, op->name, false);
    struct gb_peer_place places[GB_PEER_PLACES_MOST];
    size_t count = 0;

    if (op->status == 0 && (!entry || !entry->revision))
        op->status = gb_fail(&op->error, GPUBUF_E_NOT_FOUND, "no machine of the cluster has \"%s\"",
                             op->name);
    if (op->status == 0) {
        count = gb_peer_view_places(entry, directory->member.node,
                                    gb_peer_view_start(&directory->starts), places,
                                    GB_PEER_PLACES_MOST);
        if (!count && strcmp(entry->node->name, directory->member.node) == 0)
            op->status = gb_fail(&op->error, GPUBUF_E_NOT_FOUND,
                                 "\"%s\" was this machine's own, and is no more", op->name);
        else if (!count)
            op->status =
                gb_fail(&op->error, GPUBUF_E_UNAVAILABLE,
                        "\"%s\" is on %s, whose address is unknown", op->name, entry->node->name);
    }
    op->callback.found(op->user, op->status, op->status ? NULL : places, count,
                       op->status ? &op->error : NULL);
}

static void publish_finish(struct op *op)
{
    struct directory *directory = op->directory;
    struct gb_peer_entry *entry = gb_peer_view_entry(&directory->member.view, op->name, false);

    if (entry) {
        entry->publishing--;
        if (op->status == 0)
            entry->published = op->revision;
        sweep(directory, entry);
        gb_peer_view_tidy(&directory->member.view, entry);
    }
    op->callback.published(op->user, op->status, op->status ? 0 : op->revision,
                           op->status ? &op->error : NULL);
}

static void withdraw_finish(struct op *op)
{
    struct gb_peer_entry *entry = gb_peer_view_entry(&op->directory->member.view, op->name, false);

    if (!entry)
        return;
    entry->withdrawing = false;
    if (entry->revision != op->revision) /* it may have been published and withdrawn meanwhile */
        sweep(op->directory, entry);
    gb_peer_view_tidy(&op->directory->member.view, entry);
}

/* Ends it with op->status. */
static void op_finish(struct op *op)
{
    switch (op->kind) {
    case FIND:
        find_finish(op);
        break;
    case PUBLISH:
        publish_finish(op);
        break;
    case WITHDRAW:
        withdraw_finish(op);
        break;
    }
    op_free(op);
}

static struct op *next_ready(struct directory *directory)
{
    GB_LIST_EACH(&directory->ops, struct op, op, of_directory)
        if (op->ready && op->turn < directory->turn)
            return op;
    return NULL;
}

/* Ends what the loop has been waited for with, but nothing that is begun meanwhile. */
static void finish_ready(struct directory *directory)
{
    struct op *op;

    directory->turn++;
    while ((op = next_ready(directory)))
        op_finish(op);
    GB_LIST_EACH(&directory->ops, struct op, later, of_directory)
        if (later->ready)
            op_later(later, later->status);
}

/* Ends all, with their errors or this one. */
static void finish_all(struct directory *directory, int status, const char *message)
{
    GB_LIST_EACH(&directory->ops, struct op, op, of_directory) {
        gb_peer_etcd_cancel(op->call);
        gb_peer_change_cancel(op->change);
        op->call = NULL;
        op->change = NULL;
        if (!op->ready || status == GPUBUF_E_CANCELED)
            op->status = gb_fail(&op->error, status, "%s", message);
        op->ready = true;
    }
    finish_ready(directory);
}

/* The meaning of a failed answer to a request: the lease's end ends everything, else the request
   fails. */
static void op_failed(struct op *op, int code, const struct gb_error *error)
{
    if (code == GPUBUF_E_NOT_FOUND) { /* no call but those with a lease is answered so */
        gb_peer_member_leave(&op->directory->member, "the lease had ended");
        return;
    }
    op->status = gb_fail(&op->error, code == GPUBUF_E_PROTOCOL ? GPUBUF_E_UNAVAILABLE : code, "%s",
                         error->message);
    op_finish(op);
}

/* ---- find ---- */

/* Reads a key for the view. False: memory is out. */
static bool find_ask(struct op *op, const char *folder, const char *name, gb_peer_etcd_cb callback)
{
    struct gb_peer_member *member = &op->directory->member;
    struct gb_writer body;

    gb_writer_init(&body, 0);
    GB_WRITE_LITERAL(&body, "{");
    gb_peer_member_write_key(&body, member, folder, name);
    GB_WRITE_LITERAL(&body, "}");
    op->call = gb_peer_etcd_call(member->etcd, "kv/range", &body, callback, op);
    return op->call;
}

/* The node that has the name, if its address is not known. */
static const char *unknown_node(const struct op *op)
{
    struct gb_peer_view *view = &op->directory->member.view;
    const struct gb_peer_entry *entry = gb_peer_view_entry(view, op->name, false);

    return entry && entry->node && !entry->node->port ? entry->node->name : NULL;
}

/* Takes a key's answer in. False: the request has failed, and `op` is gone. */
static bool find_take(struct op *op, int code, struct gb_json value, struct gb_pool *pool,
                      const struct gb_error *error)
{
    struct gb_json kv;

    op->call = NULL;
    if (code < 0) {
        op_failed(op, code, error);
        return false;
    }
    kv = gb_peer_member_found(value);
    if (kv.text)
        gb_peer_member_apply_kv(&op->directory->member, kv, false, pool);
    return true;
}

static void on_found_node(void *user, int code, struct gb_json value, struct gb_pool *pool,
                          const struct gb_error *error)
{
    if (find_take(user, code, value, pool, error))
        op_finish(user);
}

static void on_found(void *user, int code, struct gb_json value, struct gb_pool *pool,
                     const struct gb_error *error)
{
    struct op *op = user;
    const char *node;

    if (!find_take(op, code, value, pool, error))
        return;
    node = unknown_node(op); /* it has just joined, and the watch has not told of it yet */
    if (!node || !find_ask(op, "/nodes/", node, on_found_node))
        op_finish(op);
}

static bool directory_find(struct gb_peer_directory *base, const char *name,
                           gb_peer_found_cb callback, void *user)
{
    struct directory *directory = (struct directory *)base;
    struct op *op = op_create(directory, FIND, name, user);
    struct gb_peer_entry *entry = gb_peer_view_entry(&directory->member.view, name, false);

    if (!op)
        return false;
    op->callback.found = callback;
    if (!gb_peer_member_is_in(&directory->member)) {
        op_later_unavailable(op);
        return true;
    }
    if (entry && entry->revision) {
        op_later(op, 0);
        return true;
    }
    if (!find_ask(op, "/names/", name, on_found))
        op_later(op, gb_fail_memory(&op->error));
    return true;
}

/* ---- publish ---- */

static void write_published(struct gb_writer *value, const struct op *op)
{
    gb_writer_init(value, 0);
    gb_write_pattern(value,
                     "{'node':%s,'version':%" PRIu64 ",'bytes':%" PRIu64 ",'serial':%" PRIu64
                     ",'since':%" PRIu64 "}",
                     op->directory->member.node, op->version, op->bytes, op->serial, op->since_ms);
}

/* Takes in what etcd has done with the name, before the watch tells. `value` NULL: it was
   deleted. */
static void take_done(struct op *op, const struct gb_writer *value, uint64_t revision)
{
    struct gb_peer_member *member = &op->directory->member;
    struct gb_writer key;

    gb_writer_init(&key, 0);
    gb_write_format(&key, "%s/names/%s", member->root, op->name);
    gb_write_char(&key, '\0');
    if (!key.failed)
        gb_peer_member_apply(member, key.data, value ? value->data : NULL,
                             value ? value->length : 0, revision, member->lease);
    gb_writer_end(&key);
}

static void publish_won(struct op *op, uint64_t revision)
{
    struct gb_peer_member *member = &op->directory->member;
    struct gb_peer_entry *entry = gb_peer_view_entry(&member->view, op->name, false);
    struct gb_writer value;

    op->revision = revision;
    op->status = 0;
    if (entry)
        entry->published = revision; /* before it is known, lest it be swept */
    write_published(&value, op);
    if (revision > member->watched && !value.failed)
        take_done(op, &value, revision);
    gb_writer_end(&value);
    op_finish(op);
}

static bool publish_send(struct op *op);

/* Another revision is there, or none. */
static void publish_refused(struct op *op, struct gb_json kv, struct gb_pool *pool)
{
    struct directory *directory = op->directory;
    uint64_t revision = gb_peer_etcd_number(gb_peer_etcd_member(kv, "mod_revision"));
    struct gb_peer_entry *entry;

    if (kv.text)
        gb_peer_member_apply_kv(&directory->member, kv, false, pool);
    entry = gb_peer_view_entry(&directory->member.view, op->name, false);
    if (entry && entry->revision != revision)
        entry = NULL; /* what etcd has cannot be read, or the watch is ahead */
    if (entry && entry->node && strcmp(entry->node->name, directory->member.node) == 0 &&
        entry->lease == directory->member.lease && entry->serial == op->serial) {
        publish_won(op, revision); /* a first answer was lost */
        return;
    }
    if (!kv.text ||
        (entry && entry->node && strcmp(entry->node->name, directory->member.node) == 0)) {
        op->revision = revision;
        if (op->tries < PUBLISH_MOST && publish_send(op))
            return;
    }
    op->status = gb_fail(&op->error, GPUBUF_E_STALE, "\"%s\" was published by %s meanwhile",
                         op->name, entry && entry->node ? entry->node->name : "another machine");
    op_finish(op);
}

static void on_published(void *user, int code, struct gb_json value, uint64_t revision,
                         struct gb_pool *pool, const struct gb_error *error)
{
    struct op *op = user;

    op->change = NULL;
    if (code < 0)
        op_failed(op, code, error);
    else if (code == 0)
        publish_won(op, revision);
    else
        publish_refused(op, gb_peer_member_found(value), pool);
}

static bool publish_send(struct op *op)
{
    struct directory *directory = op->directory;
    struct gb_peer_member *member = &directory->member;
    struct gb_peer_change_texts texts = {0};
    struct gb_writer value;

    op->tries++;
    gb_peer_member_write_compare(&texts.compare, member, "/names/", op->name, op->revision);
    write_published(&value, op);
    gb_peer_member_write_put(&texts.operation, member, "/names/", op->name, &value);
    gb_peer_member_write_range(&texts.otherwise, member, "/names/", op->name);
    op->change = gb_peer_batch_add(&member->puts, op->name, &texts, on_published, op);
    return op->change;
}

static bool directory_publish(struct gb_peer_directory *base,
                              const struct gb_peer_published *object, gb_peer_published_cb callback,
                              void *user)
{
    struct directory *directory = (struct directory *)base;
    struct op *op = op_create(directory, PUBLISH, object->name, user);
    struct gb_peer_entry *entry;

    if (!op)
        return false;
    entry = gb_peer_view_entry(&directory->member.view, object->name, true);
    if (!entry) {
        op_free(op);
        return false;
    }
    op->callback.published = callback;
    op->version = object->version;
    op->bytes = object->bytes;
    op->revision = object->seen;
    op->serial = ++directory->serial;
    op->since_ms = gb_peer_member_unix_ms();
    entry->publishing++;
    if (!gb_peer_member_is_in(&directory->member))
        op_later_unavailable(op);
    else if (!publish_send(op))
        op_later(op, gb_fail_memory(&op->error));
    return true;
}

/* ---- withdraw ---- */

static void on_withdrawn(void *user, int code, struct gb_json value, uint64_t revision,
                         struct gb_pool *pool, const struct gb_error *error)
{
    struct op *op = user;
    struct gb_peer_entry *entry = gb_peer_view_entry(&op->directory->member.view, op->name, false);

    op->change = NULL;
    if (code == GPUBUF_E_NOT_FOUND) {
        op_failed(op, code, error);
        return;
    }
    /* Where it failed, the next tick asks again. Where it did nothing, the watch tells why. */
    op->directory->unswept |= code < 0;
    if (code == 0 && entry && entry->revision == op->revision)
        take_done(op, NULL, revision);
    op_finish(op);
}

/*
 * Withdraws what this node's lease has in etcd and this node has not published, or not any more: it
 * was withdrawn, or its answer was lost and publish failed. It is called whenever that may have
 * become so, and at the tick after one that failed.
 */
static void sweep(struct directory *directory, struct gb_peer_entry *entry)
{
    struct gb_peer_member *member = &directory->member;
    struct gb_peer_change_texts texts = {0};
    struct op *op;

    if (!entry->revision || entry->revision == entry->published || entry->publishing ||
        entry->withdrawing || entry->lease != member->lease)
        return;
    if (!gb_peer_member_is_in(member)) { /* such as while names are listed anew */
        directory->unswept = true;
        return;
    }
    op = op_create(directory, WITHDRAW, entry->name, NULL);
    if (!op) {
        directory->unswept = true;
        return;
    }
    op->revision = entry->revision;
    entry->withdrawing = true;
    gb_peer_member_write_compare(&texts.compare, member, "/names/", entry->name, entry->revision);
    gb_peer_member_write_delete(&texts.operation, member, "/names/", entry->name);
    op->change = gb_peer_batch_add(&member->deletes, op->name, &texts, on_withdrawn, op);
    if (!op->change) {
        directory->unswept = true;
        op_later(op, GPUBUF_E_NO_MEMORY);
    }
}

static void directory_withdraw(struct gb_peer_directory *base, const char *name, uint64_t revision)
{
    struct directory *directory = (struct directory *)base;
    struct gb_peer_entry *entry = gb_peer_view_entry(&directory->member.view, name, false);

    if (!entry || entry->published != revision)
        return;
    entry->published = 0;
    sweep(directory, entry);
    gb_peer_view_tidy(&directory->member.view, entry);
}

/* ---- words ---- */

static void directory_word(struct gb_peer_directory *base, const char *name, uint64_t version,
                           const struct gb_peer_word *word)
{
    struct directory *directory = (struct directory *)base;
    struct gb_peer_member *member = &directory->member;
    struct gb_peer_entry *entry = gb_peer_view_entry(&member->view, name, false);
    struct gb_writer value;

    if (!entry || !entry->revision || entry->lease != member->lease || entry->version != version ||
        !gb_peer_member_is_in(member) || (entry->word && entry->word->revision == entry->revision))
        return;
    entry->worded = entry->revision;
    gb_writer_init(&value, 0);
    gb_peer_word_write(&value, word);
    gb_peer_announce(&directory->announcer, "/words/", name, entry->revision, "", &value);
    gb_writer_end(&value);
}

/* ---- copies, the list, known nodes ---- */

static void directory_copied(struct gb_peer_directory *base, const char *name, uint64_t revision,
                             uint64_t version)
{
    struct directory *directory = (struct directory *)base;
    struct gb_writer value;
    char suffix[GB_PEER_NODE_BYTES + 1];

    snprintf(suffix, sizeof(suffix), "/%s", directory->member.node);
    gb_writer_init(&value, 0);
    gb_write_format(&value, "{\"version\":%llu,\"since\":%llu}", (unsigned long long)version,
                    (unsigned long long)gb_peer_member_unix_ms());
    gb_peer_announce(&directory->announcer, "/copies/", name, revision, suffix,
                     version ? &value : NULL);
    gb_writer_end(&value);
}

static int directory_list(struct gb_peer_directory *base, const char *prefix, const char *after,
                          struct gb_peer_listed *listed, size_t most, struct gb_error *error)
{
    struct directory *directory = (struct directory *)base;
    struct gb_peer_view *view = &directory->member.view;
    bool first = !after || strcmp(after, prefix) < 0;
    struct gb_peer_entry *entry = gb_peer_view_next(view, first ? prefix : after, first);
    size_t count = 0;

    if (!gb_peer_member_is_in(&directory->member))
        return fail_unavailable(directory, error);
    for (; entry && count < most; entry = gb_peer_view_next(view, entry->name, false)) {
        if (strncmp(entry->name, prefix, strlen(prefix)) != 0)
            break;
        if (!entry->revision)
            continue;
        listed[count++] = (struct gb_peer_listed){
            entry->name,  entry->node->name, entry->revision,           entry->version,
            entry->bytes, entry->since_ms,   gb_peer_view_copies(entry)};
    }
    return (int)count;
}

static int directory_machines(struct gb_peer_directory *base, gb_peer_machine_cb each, void *user,
                              struct gb_error *error)
{
    struct directory *directory = (struct directory *)base;

    if (!gb_peer_member_is_in(&directory->member))
        return fail_unavailable(directory, error);
    gb_peer_view_nodes(&directory->member.view, each, user);
    return 0;
}

static bool directory_knows(struct gb_peer_directory *base, const char *node)
{
    struct directory *directory = (struct directory *)base;

    return gb_peer_view_node(&directory->member.view, node);
}

/* ---- the member's events ---- */

static void on_soon(uv_timer_t *timer)
{
    finish_ready(timer->data);
}

static void tell_state(struct directory *directory, const char *why, bool forgot)
{
    const struct gb_peer_directory_events *events = &directory->base.events;

    if (events->state)
        events->state(events->user, why, forgot);
}

static void on_joined(void *user)
{
    struct directory *directory = user;

    directory->said.message[0] = '\0';
    tell_state(directory, NULL, false);
}

static void forget_entry(void *item, void *user)
{
    struct gb_peer_entry *entry = item;

    entry->published = entry->worded = 0; /* the word's key has ended with the lease */
}

static void on_left(void *user, bool forgot)
{
    struct directory *directory = user;
    const char *why = directory->member.why.message;

    if (forgot) {
        gb_peer_view_each(&directory->member.view, forget_entry, NULL);
        gb_peer_announce_forget(&directory->announcer);
        finish_all(directory, GPUBUF_E_UNAVAILABLE, why);
    }
    /* The same reason, try after try, is told once. */
    if (forgot || strcmp(why, directory->said.message) != 0) {
        directory->said = directory->member.why;
        tell_state(directory, directory->said.message, forgot);
    }
}

static void on_changed(void *user, struct gb_peer_entry *entry)
{
    struct directory *directory = user;
    const struct gb_peer_directory_events *events = &directory->base.events;

    if (events->changed)
        events->changed(events->user, entry->name, entry->revision);
    if (entry->worded && entry->worded != entry->revision) {
        gb_peer_announce(&directory->announcer, "/words/", entry->name, entry->worded, "", NULL);
        entry->worded = 0;
    }
    sweep(directory, entry);
}

static void sweep_entry(void *entry, void *user)
{
    sweep(user, entry);
}

static void on_ticked(void *user)
{
    struct directory *directory = user;

    gb_peer_announce_tick(&directory->announcer);
    if (!directory->unswept)
        return;
    directory->unswept = false;
    gb_peer_view_each(&directory->member.view, sweep_entry, directory);
}

/* ---- making and ending it ---- */

static void on_soon_closed(uv_handle_t *handle)
{
    struct directory *directory = handle->data;

    free(directory);
}

static void on_member_closed(void *user)
{
    struct directory *directory = user;

    uv_close((uv_handle_t *)&directory->soon, on_soon_closed);
}

static void directory_close(struct gb_peer_directory *base)
{
    struct directory *directory = (struct directory *)base;

    directory->base.events = (struct gb_peer_directory_events){0};
    gb_peer_announce_forget(&directory->announcer);
    while (!gb_list_empty(&directory->ops))
        finish_all(directory, GPUBUF_E_CANCELED, "the directory is closed");
    gb_peer_member_close(&directory->member);
}

static const struct gb_peer_directory_methods methods = {
    .find = directory_find,
    .publish = directory_publish,
    .withdraw = directory_withdraw,
    .copied = directory_copied,
    .word = directory_word,
    .list = directory_list,
    .machines = directory_machines,
    .knows = directory_knows,
    .close = directory_close,
};

int gb_peer_directory_etcd_create(uv_loop_t *loop,
                                  const struct gb_peer_directory_etcd_settings *settings,
                                  struct gb_peer_directory **out, struct gb_error *error)
{
    struct directory *directory = calloc(1, sizeof(*directory));
    struct gb_peer_etcd_settings etcd = settings->etcd;
    struct gb_peer_member *member;
    int r;

    if (!directory)
        return gb_fail_memory(error);
    member = &directory->member;
    member->ttl_ms = 1000 * (int64_t)(settings->ttl_s ? settings->ttl_s : 10);
    if (!etcd.timeout_ms)
        etcd.timeout_ms = (unsigned)(member->ttl_ms / 5);
    r = gb_peer_member_set_texts(member, settings->root ? settings->root : "/gpubufd",
                                 settings->node, settings->host, error);
    if (r == 0)
        r = gb_peer_etcd_create(loop, &etcd, &member->etcd, error);
    if (r < 0) {
        free(directory);
        return r;
    }
    directory->base.methods = &methods;
    directory->base.events = settings->events;
    directory->announcer.member = member;
    directory->soon.data = directory;
    for (const char *letter = member->node; *letter; letter++)
        directory->starts = 31 * directory->starts + (unsigned char)*letter;
    uv_timer_init(loop, &directory->soon);
    member->puts.etcd = member->deletes.etcd = member->etcd;
    member->port = settings->port;
    member->events = (struct gb_peer_member_events){
        .user = directory,
        .joined = on_joined,
        .left = on_left,
        .changed = on_changed,
        .ticked = on_ticked,
        .closed = on_member_closed,
    };
    gb_peer_member_begin(member, loop);
    *out = &directory->base;
    return 0;
}
