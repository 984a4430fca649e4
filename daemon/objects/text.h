/*
 * The text that replies have about an object. The unchanging part is rendered once, when the object
 * is sealed, and anew when its content moves; the rest is written into each reply. Not thread-safe:
 * the loop's.
 */
#ifndef GB_TEXT_H
#define GB_TEXT_H

#include "daemon/objects/registry.h"
#include "proto/layout.h"
#include "proto/limits.h"

/* The longest text of an object, so that a reply with one, or several, is one message. */
#define GB_OBJECT_TEXT_MAX (GB_LIMIT(line_bytes) - 16384)

/* Takes over what was rendered of it. */
void gb_object_set_text(struct gb_object *object, char *text, size_t length, size_t brief);
/* Renders what replies say of the object: `layout` is what gb_layout_write() wrote, `version` what
   it will get. The memory of `room`, an empty writer, is used for that. GPUBUF_E_LIMIT (also of its
   owner's text), GPUBUF_E_NO_MEMORY. */
int gb_object_render(struct gb_object *object, const struct gb_writer *layout, uint64_t version,
                     struct gb_writer *room, struct gb_error *error);

/* Notes where it lies: `layout` is its layout. */
void gb_object_note_place(struct gb_object *object, struct gb_layout *layout);
/* Sets what the next text will have, beside the scope: the label, as JSON, which stays where it is
   until then, and how many older versions stay beside it. The present text, if there is one, still
   says what it said. */
void gb_object_entitle(struct gb_object *object, const struct gb_string *label, unsigned keep);
/* Renders it anew, with the version that it will get and the layout that it has. `entitled`: it has
   another label, so that its owner's text may be too much. */
int gb_object_set_version(struct gb_object *object, uint64_t version, bool entitled,
                          struct gb_error *error);

/* A copy of its layout's text in the pool; NULL if memory is out. Whether it still has that layout.
   */
char *gb_object_copy_layout(const struct gb_object *object, struct gb_pool *pool, size_t *length);
bool gb_object_has_layout(const struct gb_object *object, const char *text, size_t length);

/* How many buffers gb_storage_relocate() finds in the text of a layout: all of them, if
   gb_layout_write() has written it. */
size_t gb_text_count_places(const char *text, size_t length);
/* Changes where its objects' texts say that they lie, when it is about to leave the device or has
   come back: all of them or none. While it is not there its buffers are said to be in segment 0,
   from the content's start on. GPUBUF_E_NO_MEMORY. */
int gb_storage_relocate(struct gb_storage *storage, bool leaves, struct gb_error *error);

const char *gb_evict_name(enum gb_evict evict); /* "spill", "drop", "keep" */
/* Writes the object as replies have it: its members in braces, with or without the layout. */
void gb_object_write(struct gb_writer *writer, const struct gb_object *object, bool layout);
/* That, and how long it has been since it was used. */
void gb_object_write_idle(struct gb_writer *writer, const struct gb_object *object, bool layout,
                          uint64_t now_ms);
/* Only what a client needs to read or write it: name, version, device, layout, `ready`. */
void gb_object_write_essence(struct gb_writer *writer, const struct gb_object *object);
/* All of it without its layout, and where it lies. */
void gb_object_write_placed(struct gb_writer *writer, const struct gb_object *object,
                            uint64_t now_ms);
/* [[segment,offset,bytes],…]: where the object lies; empty where it is in a tier only. */
void gb_placements_write(struct gb_writer *writer, const struct gb_object *object);

#endif
