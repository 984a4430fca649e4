/*
 * Reading .safetensors files into a bundle: a file's manifest, checked by the library, and its
 * data, which go straight into the object's memory.
 */
#ifndef GB_PUT_SAFETENSORS_H
#define GB_PUT_SAFETENSORS_H

#include "client/gpubufctl/data/put.h"

/* From the start of put->input: its manifest, and the length of the file's head, which is
   `text`, to be freed. The bundle is to be freed, too. */
struct gpubuf_bundle *gb_put_manifest(struct gb_put *put, char **text, uint64_t *length);

/* Creates put->object with a bundle's layout, and writes its first bytes. */
void gb_put_create_bundle(struct gb_put *put, const struct gpubuf_bundle *bundle, const void *head,
                          uint64_t length);

#endif
