/*
 * TLS 1.3 with certificates on both sides. A machine's certificate is signed by the cluster's
 * authority, and the first DNS name in it (subjectAltName) is the node's name. Nothing older than
 * TLS 1.3 is spoken, and no certificate of another authority is trusted, not even of one that the
 * system trusts. The protocol's version is in the handshake (ALPN).
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_TLS_H
#define GB_PEER_TLS_H

#include <openssl/ssl.h>

#include "client/peer/directory/directory.h"

struct gb_peer_tls {
    SSL_CTX *context; /* for both ends of connections */
    char node[GB_PEER_NODE_BYTES];
};

/* From files in PEM: the authority's certificates, this node's chain, and its key. GPUBUF_E_INVALID
   says which file, and OpenSSL's reason. */
int gb_peer_tls_init(struct gb_peer_tls *tls, const char *authority, const char *certificate,
                     const char *key, struct gb_error *error);
void gb_peer_tls_end(struct gb_peer_tls *tls); /* a zeroed one is fine */

/* A connection on a socket, which stays the caller's. NULL: out of memory. */
SSL *gb_peer_tls_new(const struct gb_peer_tls *tls, int fd, bool server);

/* After the handshake: the other side's node, from its certificate. GPUBUF_E_DENIED. */
int gb_peer_tls_node(SSL *ssl, char node[GB_PEER_NODE_BYTES], struct gb_error *error);

/* Why the last call failed: what is wrong with the other's certificate, or OpenSSL's reason. */
void gb_peer_tls_reason(SSL *ssl, char *text, size_t size);

/* Whether it is a valid name of a node: letters, digits, '-' and '.', at most GB_PEER_NODE_BYTES
   - 1 bytes. */
bool gb_peer_tls_is_node(const char *name, size_t length);

#endif
