/* The options of the calls that make an object: create, put, register. No state. */
#ifndef GB_LIB_CREATE_OPTIONS_H
#define GB_LIB_CREATE_OPTIONS_H

#include "client/lib/wire/client.h"

/* Writes ,"mode":… and so on as `options` (may be NULL, else checked) say. */
void gb_write_create_options(struct gb_writer *writer, const struct gpubuf_create_options *options);
/* For create, seal and alias: the label (NULL: none), and the number of older versions to keep (-1:
   not said). */
int gb_check_title(const struct gpubuf_client *client, const char *label, unsigned keep);
void gb_write_title(struct gb_writer *writer, const char *label, int keep);
/* Writes a member that is a list of strings, its key first; writes nothing if `texts` is NULL. */
void gb_write_texts(struct gb_writer *writer, const char *key, const char *const *texts);
/* Copies the options that a program gave, whose struct may be an older one, and checks them. */
int gb_read_create_options(const struct gpubuf_client *client,
                           const struct gpubuf_create_options *given,
                           struct gpubuf_create_options *options);

#endif
