/*
 * Reading .safetensors files into a bundle: a file's manifest, checked by the library, and its
 * data, which go straight into the object's memory.
 */
#ifndef GB_PUT_SAFETENSORS_H
#define GB_PUT_SAFETENSORS_H

#include "put.h"

/* From the start of put->input: the length of its manifest, and the manifest. `text`, to be freed,
   has both. 0 and *bundle, to be freed; or a status. */
int gb_put_manifest(struct gb_put *put, char **text, uint64_t *length,
                    struct gpubuf_bundle **bundle);

/* Creates put->object with a bundle's layout, and writes its first bytes. 0, or a status. */
int gb_put_create_bundle(struct gb_put *put, const struct gpubuf_bundle *bundle, const void *head,
                         uint64_t length);

#endif
