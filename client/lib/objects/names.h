/* The daemon's answers about names, and about the objects that have them. */
#ifndef GB_LIB_NAMES_H
#define GB_LIB_NAMES_H

#include "client/lib/wire/client.h"

/* Reads an `object` without its layout. *info is written on success only. */
int gb_info_read(struct gb_json object, struct gb_pool *pool, struct gpubuf_info *info,
                 struct gb_error *error);
/* Checks a prefix of names that a program gave; NULL: all names. Reports GPUBUF_E_INVALID. */
int gb_check_prefix(const struct gpubuf_client *client, const char *prefix);

#endif
