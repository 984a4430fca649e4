#include "client/peer/directory/batch.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct gb_peer_change {
    struct gb_link link; /* of those that wait, then of those that are sent */
    bool sent;
    char *key, *compare, *operation, *otherwise; /* NULL: no comparison; nothing otherwise */
    gb_peer_changed_cb callback;                 /* NULL: cancelled */
    void *user;
};

static void change_free(struct gb_peer_change *change)
{
    gb_list_remove(&change->link);
    free(change->key);
    free(change->compare);
    free(change->operation);
    free(change->otherwise);
    free(change);
}

/* ---- a transaction ---- */

static bool is_sent(const struct gb_peer_batch *batch, const char *key)
{
    GB_LIST_EACH(&batch->sent, const struct gb_peer_change, change, link)
        if (strcmp(change->key, key) == 0)
            return true;
    return false;
}

/* Takes changes that wait, in turn, up to one of a key that is there already. */
static void fill(struct gb_peer_batch *batch)
{
    unsigned count = 0;

    GB_LIST_EACH(&batch->waiting, struct gb_peer_change, change, link) {
        if (count == GB_PEER_BATCH_CHANGES || is_sent(batch, change->key))
            break;
        gb_list_remove(&change->link);
        gb_list_append(&batch->sent, &change->link);
        change->sent = true;
        count++;
    }
    batch->apart = count == 1; /* or one that is refused would be asked for twice */
}

/* Writes NAME:[…] of what changes have at `offset`, without those that have nothing there. */
static void write_list(struct gb_writer *body, const char *name, const struct gb_peer_batch *batch,
                       size_t offset)
{
    const char *comma = "";

    gb_write_format(body, "\"%s\":[", name);
    GB_LIST_EACH(&batch->sent, const struct gb_peer_change, change, link) {
        const char *text = *(char *const *)((const char *)change + offset);
        if (!text)
            continue;
        gb_write_text(body, comma);
        gb_write_text(body, text);
        comma = ",";
    }
    gb_write_char(body, ']');
}

static void write_apart(struct gb_writer *body, const struct gb_peer_change *change)
{
    if (!change->compare) {
        gb_write_text(body, change->operation);
        return;
    }
    gb_write_format(body, "{\"request_txn\":{\"compare\":[%s],\"success\":[%s],\"failure\":[%s]}}",
                    change->compare, change->operation, change->otherwise ? change->otherwise : "");
}

static void on_answered(void *user, int code, struct gb_json value, struct gb_pool *pool,
                        const struct gb_error *error);

/* False: memory is out. */
static bool send_changes(struct gb_peer_batch *batch)
{
    const char *comma = "";
    struct gb_writer body;

    gb_writer_init(&body, 0);
    gb_write_char(&body, '{');
    if (batch->apart) {
        GB_WRITE_LITERAL(&body, "\"success\":[");
        GB_LIST_EACH(&batch->sent, const struct gb_peer_change, change, link) {
            gb_write_text(&body, comma);
            write_apart(&body, change);
            comma = ",";
        }
        gb_write_char(&body, ']');
    } else {
        write_list(&body, "compare", batch, offsetof(struct gb_peer_change, compare));
        gb_write_char(&body, ',');
        write_list(&body, "success", batch, offsetof(struct gb_peer_change, operation));
    }
    gb_write_char(&body, '}');
    return gb_peer_etcd_call(batch->etcd, "kv/txn", &body, on_answered, batch);
}

/* Sends the next transaction, if one is due. False: memory is out, and those in batch->sent are
   not sent. */
static bool send_next(struct gb_peer_batch *batch)
{
    if (!gb_list_empty(&batch->sent) || gb_list_empty(&batch->waiting))
        return true;
    fill(batch);
    return send_changes(batch);
}

/* The outcome of a change, for which the answer has `response`. */
static int outcome(const struct gb_peer_batch *batch, const struct gb_peer_change *change,
                   struct gb_json response, struct gb_json *value)
{
    if (!batch->apart || !change->compare)
        return 0;
    *value = gb_peer_etcd_member(response, "response_txn");
    return gb_peer_etcd_is_true(gb_peer_etcd_member(*value, "succeeded")) ? 0
                                                                          : GB_PEER_CHANGE_REFUSED;
}

/* Runs the callbacks of those that were sent. A change stays in the list meanwhile, so that none is
   sent by a callback. */
static void end_sent(struct gb_peer_batch *batch, int code, struct gb_json answer,
                     struct gb_pool *pool, const struct gb_error *error)
{
    uint64_t revision = gb_peer_etcd_revision(answer);
    struct gb_json responses = gb_peer_etcd_member(answer, "responses"), response;
    struct gb_json_walk walk = {0};
    struct gb_peer_change *change;
    struct gb_error cut;

    if (responses.text && gb_json_type(responses) == GB_JSON_ARRAY)
        walk = gb_json_walk(responses);
    for (; (change = GB_LIST_FIRST(&batch->sent, struct gb_peer_change, link));
         change_free(change)) {
        gb_peer_changed_cb callback = change->callback;
        struct gb_json value = {0};

        if (code == 0 && !gb_json_next(&walk, NULL, &response)) {
            code = gb_fail(&cut, GPUBUF_E_UNAVAILABLE, "etcd answered less than it was asked");
            error = &cut;
        }
        int r = code < 0 ? code : outcome(batch, change, response, &value);
        change->callback = NULL;
        if (callback)
            callback(change->user, r, value, revision, pool, error);
    }
}

static void on_answered(void *user, int code, struct gb_json value, struct gb_pool *pool,
                        const struct gb_error *error)
{
    struct gb_peer_batch *batch = user;
    struct gb_error memory;
    bool sent = false;

    if (code == 0 && !batch->apart &&
        !gb_peer_etcd_is_true(gb_peer_etcd_member(value, "succeeded"))) {
        batch->apart = true;
        sent = send_changes(batch);
    } else {
        end_sent(batch, code, value, pool, error);
        sent = send_next(batch);
    }
    for (; !sent; sent = send_next(batch))
        end_sent(batch, gb_fail_memory(&memory), (struct gb_json){0}, pool, &memory);
}

/* ---- what the directory asks ---- */

/* False: memory is out. */
static bool take_text(struct gb_writer *writer, char **text)
{
    if (!writer->length && !writer->failed)
        return true;
    *text = gb_writer_take(writer, NULL);
    return *text;
}

struct gb_peer_change *gb_peer_batch_add(struct gb_peer_batch *batch, const char *key,
                                         struct gb_peer_change_texts *texts,
                                         gb_peer_changed_cb callback, void *user)
{
    struct gb_peer_change *change = calloc(1, sizeof(*change));
    bool taken = false;

    if (change) {
        *change = (struct gb_peer_change){.callback = callback, .user = user};
        change->key = strdup(key);
        taken = change->key && take_text(&texts->compare, &change->compare) &&
                take_text(&texts->operation, &change->operation) && change->operation &&
                take_text(&texts->otherwise, &change->otherwise);
    }
    gb_writer_end(&texts->compare);
    gb_writer_end(&texts->operation);
    gb_writer_end(&texts->otherwise);
    if (!taken) {
        if (change)
            change_free(change);
        return NULL;
    }
    gb_list_append(&batch->waiting, &change->link);
    if (send_next(batch))
        return change;
    change_free(change); /* it alone was to be sent: others would have been before */
    return NULL;
}

void gb_peer_change_cancel(struct gb_peer_change *change)
{
    if (!change)
        return;
    change->callback = NULL;
    if (!change->sent) /* else it is freed with the answer */
        change_free(change);
}

void gb_peer_batch_end(struct gb_peer_batch *batch)
{
    GB_LIST_EACH(&batch->sent, struct gb_peer_change, change, link)
        change_free(change);
    GB_LIST_EACH(&batch->waiting, struct gb_peer_change, change, link)
        change_free(change);
}
