/*
 * The answer to `open` (session.h), checked: the daemon would take the layout, and its buffers have
 * as many bytes as the answer says.
 */
#ifndef GB_PEER_GRANTED_H
#define GB_PEER_GRANTED_H

#include "client/peer/content/content.h"
#include "client/peer/directory/directory.h"
#include "client/peer/directory/word.h"

struct gb_peer_granted {
    uint64_t lease, content, mode;
    struct gb_string device, label;
    struct gb_json described; /* the layout's text */
    struct gb_layout layout;
};

/* Its strings lie in the pool and in `text`. GPUBUF_E_PROTOCOL. */
int gb_peer_granted_read(const char *text, size_t length, struct gb_pool *pool,
                         struct gb_peer_granted *granted, struct gb_error *error);

/* The lease alone, from an answer that is otherwise useless; 0: it has none. */
uint64_t gb_peer_granted_lease(const char *text, size_t length);

/* The answer to `sum`. GPUBUF_E_PROTOCOL. */
int gb_peer_granted_sum(const char *text, size_t length, struct gb_pool *pool, uint64_t *sum,
                        struct gb_error *error);

/* The answer to `word`. GPUBUF_E_PROTOCOL. */
int gb_peer_granted_word(const char *text, size_t length, struct gb_pool *pool,
                         struct gb_peer_word *word, struct gb_error *error);

/* The answer to `lane`: an address. GPUBUF_E_PROTOCOL. */
int gb_peer_granted_address(const char *text, size_t length, struct gb_pool *pool,
                            struct gb_string *address, struct gb_error *error);

#endif
