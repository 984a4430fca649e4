/*
 * Answers other machines: a listener, and a session for each that has connected. A session's end
 * ends its leases. Limits bound each: connections of a node, leases, requests. Chunks are sent from
 * where the objects lie, so data in flight takes at most one buffer for each session.
 *
 *     → {"method":"find","name"}            ← {"origin","revision","version","bytes"}
 *     → {"method":"open","name","version"}  ← {"lease","content","mode","device","label"?,"layout"}
 *     → {"method":"read","lease","chunk"}   ← data
 *     → {"method":"sum","lease"}            ← {"sum":"16 hexadecimal digits"}
 *     → {"method":"release","lease"}        (no answer)
 *     or ← {"error":{"kind","message"}}
 *
 * On the loop's thread.
 */
#ifndef GB_SERVE_H
#define GB_SERVE_H

#include "client/peer/described.h"
#include "client/peer/link.h"

struct gb_serve;

struct gb_serve_options {
    uv_loop_t *loop;
    struct gpubuf_client *client;
    const struct gb_tls *tls; /* may be put anew for later connections */
    struct gb_directory *directory;
    const struct gb_copies *copies;
    const char *listen;   /* ADDRESS:PORT; port 0: any */
    unsigned connections; /* at most */
};

/* All that the options point to outlives it. */
int gb_serve_new(struct gb_serve **serve, const struct gb_serve_options *options,
                 struct gb_error *error);
void gb_serve_close(struct gb_serve *serve);
uint16_t gb_serve_port(const struct gb_serve *serve);

#endif
