#include "client/peer/link/tls.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

/* In ALPN's form: a byte with the length, then the text. */
static const unsigned char protocol[] = "\x0egpubufd-peer/1";
enum { PROTOCOL_BYTES = sizeof(protocol) - 1 };

bool gb_peer_tls_is_node(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '.')
            return false;
    return length > 0 && length < GB_PEER_NODE_BYTES;
}

/* ---- names in certificates ---- */

/* The first DNS name of a certificate. */
static bool first_name(const X509 *certificate, char node[GB_PEER_NODE_BYTES])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_DNS)
            continue;
        const char *text = (const char *)ASN1_STRING_get0_data(name->d.dNSName);
        size_t length = (size_t)ASN1_STRING_length(name->d.dNSName);
        if (!gb_peer_tls_is_node(text, length))
            break;
        memcpy(node, text, length);
        node[length] = '\0';
        found = true;
    }
    GENERAL_NAMES_free(names);
    return found;
}

int gb_peer_tls_node(SSL *ssl, char node[GB_PEER_NODE_BYTES], struct gb_error *error)
{
    X509 *certificate = SSL_get1_peer_certificate(ssl);
    bool found = certificate && first_name(certificate, node);

    X509_free(certificate);
    return found ? 0 : gb_fail(error, GPUBUF_E_DENIED, "its certificate names no node");
}

/* ---- reasons ---- */

static void openssl_reason(char *text, size_t size)
{
    unsigned long code = ERR_peek_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    snprintf(text, size, "%s", reason ? reason : "the connection broke");
    ERR_clear_error();
}

void gb_peer_tls_reason(SSL *ssl, char *text, size_t size)
{
    long verified = SSL_get_verify_result(ssl);

    if (verified != X509_V_OK) {
        snprintf(text, size, "its certificate: %s", X509_verify_cert_error_string(verified));
        ERR_clear_error();
    } else {
        openssl_reason(text, size);
    }
}

static int refuse(const char *what, const char *path, struct gb_error *error)
{
    char reason[200];

    openssl_reason(reason, sizeof(reason));
    return gb_fail(error, GPUBUF_E_INVALID, "the %s %s: %s", what, path, reason);
}

/* ---- contexts ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *length,
                           const unsigned char *in, unsigned in_length, void *arg)
{
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, length, protocol, PROTOCOL_BYTES, in, in_length) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int read_files(struct gb_peer_tls *tls, const char *authority, const char *certificate,
                      const char *key, struct gb_error *error)
{
    SSL_CTX *context = tls->context;

    if (SSL_CTX_load_verify_file(context, authority) != 1)
        return refuse("authority", authority, error);
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        return refuse("certificate", certificate, error);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return refuse("key", key, error);
    if (!first_name(SSL_CTX_get0_certificate(context), tls->node))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the certificate %s names no node: it needs a subjectAltName such as "
                       "DNS:node1",
                       certificate);
    return 0;
}

int gb_peer_tls_init(struct gb_peer_tls *tls, const char *authority, const char *certificate,
                     const char *key, struct gb_error *error)
{
    int r = 0;

    *tls = (struct gb_peer_tls){.context = SSL_CTX_new(TLS_method())};
    if (!tls->context || SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(tls->context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                               "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
        SSL_CTX_set_alpn_protos(tls->context, protocol, PROTOCOL_BYTES) != 0)
        r = gb_fail(error, GPUBUF_E_NO_MEMORY, "cannot set TLS up: out of memory");
    if (r == 0)
        r = read_files(tls, authority, certificate, key, error);
    if (r < 0) {
        gb_peer_tls_end(tls);
        return r;
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_alpn_select_cb(tls->context, choose_protocol, NULL);
    /* Certificates are checked in every handshake, so that an expired one is refused: no session is
       resumed. */
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(tls->context, 0);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* Reads a record and the head of the next one in one call. The buffer keeps OpenSSL's own size:
       with a larger one OpenSSL moves everything read ahead at each record, which takes longer. */
    SSL_CTX_set_read_ahead(tls->context, 1);
    return 0;
}

void gb_peer_tls_end(struct gb_peer_tls *tls)
{
    SSL_CTX_free(tls->context);
    tls->context = NULL;
}

SSL *gb_peer_tls_new(const struct gb_peer_tls *tls, int fd, bool server)
{
    SSL *ssl = SSL_new(tls->context);

    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}
