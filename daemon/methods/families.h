/* The figures of the whole daemon, and all figures as families for monitoring. */
#ifndef GB_FAMILIES_H
#define GB_FAMILIES_H

#include "daemon/methods/call.h"

struct gb_figure;

/* Returns how many it has set. */
size_t gb_server_figures(struct gb_server *server, struct gb_figure *figures);
/* Writes the elements of `families`. */
void gb_server_write_families(struct gb_server *server, struct gb_writer *writer);

#endif
