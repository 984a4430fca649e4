/* The objects of an environment, by their indices. In the environment's thread. */
#ifndef GB_NODE_TABLE_H
#define GB_NODE_TABLE_H

#include "client/node/src/addon.h"

/* An index for an object, which is taken over; -1 without memory, and the object is released. */
double gb_object_add(struct gb_addon *addon, struct gpubuf_object *object);
/* The object of an index; NULL after throwing. */
struct gpubuf_object *gb_object_at(struct gb_addon *addon, napi_value value, size_t *index);
/* Frees the index, and the bundle's manifest. The caller releases the object. */
struct gpubuf_object *gb_object_take(struct gb_addon *addon, size_t index);
/* As gb_object_add, but 8 times the index, plus the object's kind. */
double gb_object_number(struct gb_addon *addon, struct gpubuf_object *object);

#endif
