/* The options of what makes an object: create, put, register. No state. */
#ifndef GB_LIB_CREATE_OPTIONS_H
#define GB_LIB_CREATE_OPTIONS_H

#include "client/lib/wire/client.h"

/* Writes ,"mode":… and so on as `options` (may be NULL, else checked) say. */
void gb_write_create_options(struct gb_writer *writer, const struct gpubuf_create_options *options);
/* Of create, seal and alias: label (NULL: none), and how many older versions stay (-1: unsaid). */
int gb_check_title(const struct gpubuf_client *client, const char *label, unsigned keep);
void gb_write_title(struct gb_writer *writer, const char *label, int keep);
/* Writes a member, its key first, that is a list of strings; NULL: not at all. */
void gb_write_texts(struct gb_writer *writer, const char *key, const char *const *texts);
/* Takes over the options of a program that may know fewer of them. */
int gb_read_create_options(const struct gpubuf_client *client,
                           const struct gpubuf_create_options *given,
                           struct gpubuf_create_options *options);

#endif
