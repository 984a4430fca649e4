/*
 * The watches and providers of a client, which get events until they end. The addon's lock guards
 * them. Any thread.
 */
#ifndef GB_NODE_WATCHING_H
#define GB_NODE_WATCHING_H

#include "client/node/src/addon.h"

/* A watch, or a provider. The node client owns it, until unwatch() or the client's close. */
struct gb_watching {
    struct gb_watching *next;
    struct gb_node_client *client;
    double id;       /* JavaScript's */
    uint64_t number; /* the daemon's; 0 until it has answered, and of providers */
    uint64_t lost;   /* events since the last one for which there was memory */
};

void gb_watching_add(struct gb_watching *watch);
/* Takes it off its client, and frees it. */
void gb_watching_remove(struct gb_watching *watch);
/* The watch of the daemon's number; NULL if there is none. */
struct gb_watching *gb_watching_find(struct gb_node_client *client, uint64_t number);
/* Completes the call that began it; a failure frees it. */
void gb_watching_answered(struct gpubuf_client *client, int status, uint64_t number,
                          struct gb_watching *watch);
/* Frees its watches, after it has been disconnected. */
void gb_watches_free(struct gb_node_client *client);

#endif
