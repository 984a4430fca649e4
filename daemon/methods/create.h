/* What the methods that make objects have in common. */
#ifndef GB_METHOD_OBJECT_H
#define GB_METHOD_OBJECT_H

#include "daemon/methods/methods.h"

/* Whether the name may be taken now: the same is asked again when it is taken. */
int gb_object_check_name(struct gb_call *call, const struct gb_string *name, bool replace);

/* A new object over the storage, whose reference it takes in any case. */
struct gb_object *gb_object_make(struct gb_call *call, const struct gb_string *name,
                                 struct gb_storage *storage, struct gb_layout *layout,
                                 unsigned mode);

/* Names and forgets: for objects that are born sealed and have been rendered (`r`: or why not). Answers
   with the version. */
int gb_object_publish(struct gb_call *call, struct gb_object *object, int r, bool replace);

#endif
