#include "client/peer/announce.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of one copy that etcd is being told. */
struct note {
    struct gb_announcer *announcer;
    struct gb_change *change;
    uint64_t revision, version;
    bool changed; /* since it was sent */
    char name[];
};

static int compare(const void *left, const void *right)
{
    const struct note *a = left, *b = right;

    if (a->revision != b->revision)
        return a->revision < b->revision ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void note_free(struct note *note)
{
    tdelete(note, &note->announcer->notes, compare);
    gb_change_cancel(note->change);
    free(note);
}

static void on_answered(void *user, int code, struct gb_json value, uint64_t revision,
                        struct gb_pool *pool, const struct gb_error *error);

/* The tick does it where memory is out, or while the keys are being listed. */
static void note_send(struct note *note)
{
    struct gb_member *member = note->announcer->member;
    struct gb_change_texts texts = {0};
    struct gb_writer value, key;

    note->changed = false;
    if (!gb_member_is_in(member)) {
        note->announcer->unsent = true;
        return;
    }
    gb_writer_init(&key, 0);
    gb_write_format(&key, "%s@%llu/%s", note->name, (unsigned long long)note->revision,
                    member->node);
    gb_write_char(&key, '\0');
    if (note->version) {
        GB_WRITE_LITERAL(&texts.operation, "{\"request_put\":{");
        gb_writer_init(&value, 0);
        gb_write_format(&value, "{\"version\":%llu,\"since\":%llu}",
                        (unsigned long long)note->version, (unsigned long long)gb_member_unix_ms());
        gb_member_write_put(&texts.operation, member, "/copies/", key.failed ? "" : key.data,
                            &value);
    } else {
        GB_WRITE_LITERAL(&texts.operation, "{\"request_delete_range\":{");
        gb_member_write_key(&texts.operation, member, "/copies/", key.failed ? "" : key.data);
    }
    GB_WRITE_LITERAL(&texts.operation, "}}");
    texts.operation.failed |= key.failed;
    note->change = gb_batch_add(note->version ? &member->puts : &member->deletes,
                                key.failed ? "" : key.data, &texts, on_answered, note);
    gb_writer_end(&key);
    note->announcer->unsent |= !note->change;
}

/* A copy that could not be told is one place fewer for others. A key that could not be deleted
   would send others here in vain for as long as the lease lasts: the tick deletes it. */
static void on_answered(void *user, int code, struct gb_json value, uint64_t revision,
                        struct gb_pool *pool, const struct gb_error *error)
{
    struct note *note = user;

    (void)value;
    (void)revision;
    (void)pool;
    (void)error;
    note->change = NULL;
    if (code == GPUBUF_E_NOT_FOUND) /* no call but those with a lease is answered so */
        gb_member_leave(note->announcer->member, "the lease had ended");
    else if (note->changed)
        note_send(note);
    else if (code == 0 || note->version)
        note_free(note);
    else
        note->announcer->unsent = true;
}

void gb_announce_copy(struct gb_announcer *announcer, const char *name, uint64_t revision,
                      uint64_t version)
{
    enum gb_member_state state = announcer->member->state;
    size_t length = strlen(name);
    struct note *note, **found;

    if (state != GB_LISTING && state != GB_IN)
        return; /* there are no keys under a lease */
    note = calloc(1, sizeof(*note) + length + 1);
    if (!note)
        return;
    *note = (struct note){.announcer = announcer, .revision = revision, .version = version};
    memcpy(note->name, name, length + 1);
    found = tsearch(note, &announcer->notes, compare);
    if (found && *found == note) {
        note_send(note);
        return;
    }
    free(note);
    if (!found)
        return;
    (*found)->version = version;
    (*found)->changed = true;
}

static void visit_unsent(const void *at, VISIT visit, void *user)
{
    struct note *note = *(struct note *const *)at;

    (void)user;
    if ((visit == postorder || visit == leaf) && !note->change)
        note_send(note);
}

void gb_announce_tick(struct gb_announcer *announcer)
{
    if (!announcer->unsent)
        return;
    announcer->unsent = false;
    twalk_r(announcer->notes, visit_unsent, NULL);
}

void gb_announce_forget(struct gb_announcer *announcer)
{
    while (announcer->notes)
        note_free(*(struct note **)announcer->notes);
}
