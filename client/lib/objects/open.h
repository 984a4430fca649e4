/*
 * Shared by the open of one name (open.c) and of many (open_many.c): their options, and what the
 * daemon grants for a name. To be called with the client entered.
 */
#ifndef GB_LIB_OPEN_H
#define GB_LIB_OPEN_H

#include "client/lib/wire/client.h"

#define GB_NO_SLOT UINT64_MAX

/* A reply's answer for one name. */
struct gb_grant {
    uint64_t generation;
    uint64_t lease, slot; /* the slot in the page; GB_NO_SLOT: none */
    struct gb_json object, error, segments;
};

/* Copies the options that a program gave, whose struct may be an older one, and checks them. */
int gb_open_read_options(const struct gpubuf_client *client,
                         const struct gpubuf_open_options *given,
                         struct gpubuf_open_options *options);
/* Writes the rest of a request's params, after its names. */
void gb_open_write_options(struct gb_writer *writer, const struct gpubuf_open_options *options);
/* Has *error say that the answer to open is malformed. Returns GPUBUF_E_PROTOCOL. */
int gb_open_malformed(struct gb_error *error);
/*
 * Opens a lease that nothing else in the process shares, whose object lies in one segment of its
 * own. Blocks, and enters the client itself. With `of`, the version that this lease is on, whatever
 * its name means by now; else as gpubuf_open. GPUBUF_E_UNSUPPORTED: it lies in a segment that
 * others share. Reports failures.
 */
int gb_open_alone(struct gpubuf_client *client, const char *name,
                  const struct gpubuf_open_options *given, const struct gb_client_lease *of,
                  struct gpubuf_object **object);
/* The object that a cached lease holds, with a reference, if the name still means it, and the
   lease's number; NULL: ask the daemon. Unlike the others it takes the client's lock itself. */
struct gpubuf_object *gb_open_cached(struct gpubuf_client *client, const char *name,
                                     uint64_t *lease);
/* Ends a request that a cached lease has answered: its callback runs with the next ones. */
void gb_open_end_at_once(struct gb_request *request);

#endif
