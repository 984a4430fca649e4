#include "client/peer/batch.h"

#include <stdlib.h>
#include <string.h>

/* In the list of those that wait, then in that of those that are sent. */
struct gb_change {
    struct gb_change *next, **here; /* `here`: while it waits */
    struct gb_batch *batch;
    char *key, *operation;
    gb_changed_cb callback; /* NULL: cancelled */
    void *user;
};

static void change_free(struct gb_change *change)
{
    free(change->key);
    free(change->operation);
    free(change);
}

/* ---- those that wait ---- */

static void push(struct gb_batch *batch, struct gb_change *change)
{
    if (!batch->waiting)
        batch->end = &batch->waiting;
    change->here = batch->end;
    *change->here = change;
    batch->end = &change->next;
}

static void pull(struct gb_change *change)
{
    *change->here = change->next;
    if (change->next)
        change->next->here = change->here;
    else
        change->batch->end = change->here;
    change->next = NULL;
    change->here = NULL;
}

/* ---- a transaction ---- */

static bool is_sent(const struct gb_batch *batch, const char *key)
{
    const struct gb_change *change = batch->sent;

    while (change && strcmp(change->key, key) != 0)
        change = change->next;
    return change;
}

/* Takes changes that wait, in turn, up to one of a key that is there already. */
static void fill(struct gb_batch *batch, struct gb_writer *body)
{
    struct gb_change *change, **end = &batch->sent;
    unsigned count = 0;

    GB_WRITE_LITERAL(body, "{\"success\":[");
    while ((change = batch->waiting) && count < GB_BATCH_CHANGES && !is_sent(batch, change->key)) {
        pull(change);
        *end = change;
        end = &change->next;
        if (count++)
            GB_WRITE_LITERAL(body, ",");
        gb_write_text(body, change->operation);
    }
    GB_WRITE_LITERAL(body, "]}");
}

static void on_answered(void *user, int code, struct gb_json value, struct gb_pool *pool,
                        const struct gb_error *error);

/* Sends the next transaction, if one is due. False: memory is out, and those in batch->sent are
   not sent. */
static bool go_on(struct gb_batch *batch)
{
    struct gb_writer body;

    if (batch->sent || !batch->waiting)
        return true;
    gb_writer_init(&body, 0);
    fill(batch, &body);
    return gb_etcd_call(batch->etcd, "kv/txn", &body, on_answered, batch);
}

static void drop_first(struct gb_change **list)
{
    struct gb_change *change = *list;

    *list = change->next;
    change_free(change);
}

/* Runs the callbacks of those that were sent. A change stays in the list meanwhile, so that none is
   sent by a callback. */
static void end_sent(struct gb_batch *batch, int code, struct gb_json answer, struct gb_pool *pool,
                     const struct gb_error *error)
{
    uint64_t revision =
        gb_etcd_number(gb_etcd_member(gb_etcd_member(answer, "header"), "revision"));
    struct gb_json responses = gb_etcd_member(answer, "responses"), response;
    struct gb_json_walk walk = {0};
    struct gb_error cut;

    if (responses.text && gb_json_type(responses) == GB_JSON_ARRAY)
        walk = gb_json_walk(responses);
    for (; batch->sent; drop_first(&batch->sent)) {
        struct gb_change *change = batch->sent;
        gb_changed_cb callback = change->callback;

        if (code == 0 && !gb_json_next(&walk, NULL, &response)) {
            code = gb_fail(&cut, GB_UNAVAILABLE, "etcd answered less than it was asked");
            error = &cut;
        }
        change->callback = NULL;
        if (callback)
            callback(change->user, code,
                     code < 0 ? (struct gb_json){0} : gb_etcd_member(response, "response_txn"),
                     revision, pool, error);
    }
}

static void on_answered(void *user, int code, struct gb_json value, struct gb_pool *pool,
                        const struct gb_error *error)
{
    struct gb_batch *batch = user;
    struct gb_error memory;

    end_sent(batch, code, value, pool, error);
    while (!go_on(batch))
        end_sent(batch, gb_fail_memory(&memory), (struct gb_json){0}, pool, &memory);
}

/* ---- what the directory asks ---- */

struct gb_change *gb_batch_add(struct gb_batch *batch, const char *key, struct gb_writer *operation,
                               gb_changed_cb callback, void *user)
{
    struct gb_change *change = calloc(1, sizeof(*change));
    size_t length;

    if (!change) {
        gb_writer_end(operation);
        return NULL;
    }
    *change = (struct gb_change){.batch = batch, .callback = callback, .user = user};
    change->operation = gb_writer_take(operation, &length);
    change->key = strdup(key);
    if (!change->operation || !change->key) {
        change_free(change);
        return NULL;
    }
    push(batch, change);
    if (go_on(batch))
        return change;
    drop_first(&batch->sent); /* it alone: others would have been sent before */
    return NULL;
}

void gb_change_cancel(struct gb_change *change)
{
    if (!change)
        return;
    change->callback = NULL;
    if (!change->here)
        return; /* it is freed with the answer */
    pull(change);
    change_free(change);
}

void gb_batch_end(struct gb_batch *batch)
{
    while (batch->sent)
        drop_first(&batch->sent);
    while (batch->waiting)
        drop_first(&batch->waiting);
}
