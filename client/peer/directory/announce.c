#include "client/peer/directory/announce.h"

#include <stdlib.h>
#include <string.h>

#include "client/peer/base/tree.h"

/* The state of one key that etcd is being told. */
struct note {
    struct gb_peer_announcer *announcer;
    struct gb_peer_change *change;
    const char *kind; /* static */
    char *name;       /* behind the kind */
    char *value;      /* NULL: it is to be deleted */
    bool changed;     /* since it was sent */
};

static int compare(const void *left, const void *right)
{
    const struct note *a = left, *b = right;
    int order = strcmp(a->kind, b->kind);

    return order ? order : strcmp(a->name, b->name);
}

static void note_free(struct note *note)
{
    tdelete(note, &note->announcer->notes, compare);
    gb_peer_change_cancel(note->change);
    free(note->name);
    free(note->value);
    free(note);
}

static void on_answered(void *user, int code, struct gb_json answer, uint64_t revision,
                        struct gb_pool *pool, const struct gb_error *error);

/* The tick does it where memory is out, or while the keys are being listed. */
static void note_send(struct note *note)
{
    struct gb_peer_member *member = note->announcer->member;
    struct gb_peer_change_texts texts = {0};
    struct gb_writer value;

    note->changed = false;
    if (gb_peer_member_is_in(member) && note->value) {
        gb_writer_init(&value, 0);
        gb_write_text(&value, note->value);
        gb_peer_member_write_put(&texts.operation, member, note->kind, note->name, &value);
        note->change = gb_peer_batch_add(&member->puts, note->name, &texts, on_answered, note);
    } else if (gb_peer_member_is_in(member)) {
        gb_peer_member_write_delete(&texts.operation, member, note->kind, note->name);
        note->change = gb_peer_batch_add(&member->deletes, note->name, &texts, on_answered, note);
    }
    note->announcer->unsent |= !note->change;
}

/* A key that could not be written is one hint fewer for others. One that could not be deleted would
   send others here in vain for as long as the lease lasts: the tick deletes it. */
static void on_answered(void *user, int code, struct gb_json answer, uint64_t revision,
                        struct gb_pool *pool, const struct gb_error *error)
{
    struct note *note = user;

    note->change = NULL;
    if (code == GPUBUF_E_NOT_FOUND) /* no call but those with a lease is answered so */
        gb_peer_member_leave(note->announcer->member, "the lease had ended");
    else if (note->changed)
        note_send(note);
    else if (code == 0 || note->value)
        note_free(note);
    else
        note->announcer->unsent = true;
}

/* NULL: memory is out. */
static char *key_name(const char *name, uint64_t revision, const char *suffix)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_format(&writer, "%s@%llu%s", name, (unsigned long long)revision, suffix);
    char *text = gb_writer_take(&writer, NULL);
    gb_writer_end(&writer);
    return text;
}

/* The note of a key, which is made if there is none; NULL: memory is out. */
static struct note *find(struct gb_peer_announcer *announcer, const char *kind, char *name)
{
    struct note *note = calloc(1, sizeof(*note)), **found = NULL;

    if (note && name) {
        *note = (struct note){.announcer = announcer, .kind = kind, .name = name};
        found = tsearch(note, &announcer->notes, compare);
    }
    if (found && *found == note)
        return note;
    free(note);
    free(name);
    return found ? *found : NULL;
}

void gb_peer_announce(struct gb_peer_announcer *announcer, const char *kind, const char *name,
                      uint64_t revision, const char *suffix, struct gb_writer *value)
{
    enum gb_peer_member_state state = announcer->member->state;
    bool under_lease = state == GB_PEER_LISTING || state == GB_PEER_IN; /* else there are no keys */
    char *text = value ? gb_writer_take(value, NULL) : NULL;
    struct note *note = under_lease && (text || !value)
                            ? find(announcer, kind, key_name(name, revision, suffix))
                            : NULL;

    if (!note) {
        free(text);
        return;
    }
    free(note->value);
    note->value = text;
    if (note->change)
        note->changed = true;
    else
        note_send(note);
}

static void visit_unsent(void *item, void *user)
{
    struct note *note = item;

    if (!note->change)
        note_send(note);
}

void gb_peer_announce_tick(struct gb_peer_announcer *announcer)
{
    if (!announcer->unsent)
        return;
    announcer->unsent = false;
    gb_peer_tree_each(announcer->notes, visit_unsent, NULL);
}

void gb_peer_announce_forget(struct gb_peer_announcer *announcer)
{
    while (announcer->notes)
        note_free(*(struct note **)announcer->notes);
}
