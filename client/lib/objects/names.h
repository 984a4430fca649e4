/* The daemon's answers about names, and about the objects that have them. */
#ifndef GB_LIB_NAMES_H
#define GB_LIB_NAMES_H

#include "client/lib/wire/client.h"

/* Reads an `object` without its layout. *info is written on success only. */
int gb_info_read(struct gb_json object, struct gb_pool *pool, struct gpubuf_info *info,
                 struct gb_error *error);
/* Of names, as a program gives it; NULL: all. Reports GPUBUF_E_INVALID. */
int gb_check_prefix(const struct gpubuf_client *client, const char *prefix);

#endif
