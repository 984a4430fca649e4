/*
 * The text that replies have about an object. Its name, version and layout are rendered once, when
 * the object is sealed, and anew when its content moves; the rest is written into each reply. Not
 * thread-safe: the loop's.
 */
#ifndef GB_TEXT_H
#define GB_TEXT_H

#include "daemon/objects/registry.h"
#include "proto/base/limits.h"
#include "proto/layout/layout.h"

/* The longest text of an object, so that a reply with one, or several, is one message. */
#define GB_OBJECT_TEXT_MAX (GB_LIMIT(line_bytes) - 16384)

/* Takes over a rendered text. */
void gb_object_set_text(struct gb_object *object, char *text, size_t length, size_t brief);
/* Gives an object that has neither text nor title yet a note, which stays with it.
   GPUBUF_E_NO_MEMORY. */
int gb_object_set_note(struct gb_object *object, const struct gb_string *note,
                       struct gb_error *error);
/* The bytes of a text that are its note; 0: it has none. */
size_t gb_text_note(const char *text, size_t length);
/* Renders the text of the object. `layout` is from gb_layout_write(); `version` is the one that the
   object will get. Uses the memory of `room`, an empty writer. GPUBUF_E_LIMIT (also if its owner
   has too much text), GPUBUF_E_NO_MEMORY. */
int gb_object_render(struct gb_object *object, const struct gb_writer *layout, uint64_t version,
                     struct gb_writer *room, struct gb_error *error);

/* Notes where the object's first buffer lies, by its layout. */
void gb_object_note_place(struct gb_object *object, struct gb_layout *layout);
/* Renders the text anew, with that version and the layout that it has. `entitled`: it has another
   label or `keep`, so its owner may have too much text by it. */
int gb_object_set_version(struct gb_object *object, uint64_t version, bool entitled,
                          struct gb_error *error);

/* A copy of its layout's text in the pool; NULL if memory is out. */
char *gb_object_copy_layout(const struct gb_object *object, struct gb_pool *pool, size_t *length);
/* Whether that is the text of its layout. */
bool gb_object_has_layout(const struct gb_object *object, const char *text, size_t length);

/* How many buffers gb_storage_relocate() finds in the text of a layout: all, if gb_layout_write()
   has written it. */
size_t gb_text_count_places(const char *text, size_t length);
/* Changes the places of buffers in the texts of all objects of a storage, or (on failure) of none,
   when it is about to leave its device or has come back. While it is away its buffers are in
   segment 0, with offsets from the start of the content. GPUBUF_E_NO_MEMORY, GPUBUF_E_LIMIT. */
int gb_storage_relocate(struct gb_storage *storage, bool leaves, struct gb_error *error);

/* Members of an object that lists and events have beside the text, which is all that `open` has. */
struct gb_traits {
    enum gb_share share;
    enum gb_evict evict;
    uint64_t bytes;
    int64_t created_ms;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    bool by_session;
};

void gb_traits_write(struct gb_writer *writer, const struct gb_traits *traits);

extern const char *const gb_evict_names[]; /* by enum gb_evict; NULL ends them */
/* The parts of a reply about an object that not all replies have: its layout; `idle_ms`, the time
   since it was used; `placements`; its note, which is for its owner. */
enum { GB_WITH_LAYOUT = 1, GB_WITH_IDLE = 2, GB_WITH_PLACES = 4, GB_WITH_NOTE = 8 };
/* GB_WITH_NOTE if that is for this user, else 0. */
static inline unsigned gb_object_note_for(const struct gb_object *object,
                                          const struct gb_user *user)
{
    return object->owner == user ? GB_WITH_NOTE : 0;
}
/* Writes the object as replies have it, in braces. `now_ms` is for GB_WITH_IDLE. */
void gb_object_write(struct gb_writer *writer, const struct gb_object *object, unsigned parts,
                     uint64_t now_ms);
/* Only the members that `reader` needs to read or write it: name, version, label, `keep`, device,
   layout, `ready`, and whether its content is `foreign`. */
void gb_object_write_essence(struct gb_writer *writer, const struct gb_object *object,
                             const struct gb_user *reader);
/* Writes [[segment,offset,bytes],…]: the object's placements; empty if it is in a tier only. */
void gb_placements_write(struct gb_writer *writer, const struct gb_object *object);

#endif
