/*
 * The parts of the peer, by which each knows the others. main.c makes and ends them; whatever a
 * part uses outlives it.
 */
#ifndef GB_PEER_PARTS_H
#define GB_PEER_PARTS_H

#include <stdbool.h>
#include <uv.h>

struct gb_peer_parts {
    const struct gb_peer_options *options;
    uv_loop_t *loop;
    struct gpubuf_client *client;
    const struct gb_peer_tls *tls; /* replaced when certificates are read anew */
    const struct gb_peer_ucx *ucx; /* for lanes; NULL: none */
    struct gb_peer_copies *copies;
    struct gb_peer_figures *figures;
    struct gb_peer_remotes *remotes;
    struct gb_peer_directory *directory;
    struct gb_peer_words *words;
    bool late; /* the directory has been waited for long enough since the start */
};

#endif
