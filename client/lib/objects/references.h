/* Counting objects: a lease ends with the last that views it. */
#ifndef GB_LIB_REFERENCES_H
#define GB_LIB_REFERENCES_H

#include "gpubuf.h"

/* As gpubuf_release, with the client's lock held. */
void gb_object_drop(struct gpubuf_object *object);

#endif
