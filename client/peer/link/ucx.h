/*
 * The part of UCX that the peer uses, loaded at run time: the program neither links to UCX nor
 * needs it. The functions are those of libucp and libucs of version 1, under their own names.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_UCX_H
#define GB_PEER_UCX_H

#include <ucp/api/ucp.h>

#include "proto/base/errors.h"

#define GB_PEER_UCX_FUNCTIONS(X)                                                                   \
    X(ucp_config_read)                                                                             \
    X(ucp_config_release)                                                                          \
    X(ucp_init_version)                                                                            \
    X(ucp_cleanup)                                                                                 \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_get_address)                                                                      \
    X(ucp_worker_release_address)                                                                  \
    X(ucp_worker_get_efd)                                                                          \
    X(ucp_worker_arm)                                                                              \
    X(ucp_worker_progress)                                                                         \
    X(ucp_ep_create)                                                                               \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_tag_send_nbx)                                                                            \
    X(ucp_tag_recv_nbx)                                                                            \
    X(ucp_tag_probe_nb)                                                                            \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_free)                                                                            \
    X(ucs_status_string)

struct gb_peer_ucx {
    void *library;
    ucp_context_h context;
#define GB_PEER_UCX_MEMBER(function) __typeof__(&function) function;
    GB_PEER_UCX_FUNCTIONS(GB_PEER_UCX_MEMBER)
#undef GB_PEER_UCX_MEMBER
};

/* Loads the library, and makes a context with the settings of UCX's own variables (UCX_TLS,
   UCX_NET_DEVICES and so on). GPUBUF_E_UNSUPPORTED says why not. */
int gb_peer_ucx_open(struct gb_peer_ucx *ucx, struct gb_error *error);
void gb_peer_ucx_close(struct gb_peer_ucx *ucx); /* a zeroed one is fine */

#endif
