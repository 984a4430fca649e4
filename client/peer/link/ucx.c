#include "client/peer/link/ucx.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libucp.so.0"

static int load(struct gb_peer_ucx *ucx, struct gb_error *error)
{
    const char *missing = NULL;

    /* A library should not print the stack of a program that crashes, nor have it wait then. */
    (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
    (void)setenv("UCX_ERROR_SIGNALS", "", 0);
    /* UCX connects on the loop's thread, which must not wait for another machine. */
    (void)setenv("UCX_TCP_CONN_NB", "y", 0);
    /* No hooks in mmap: to write them takes memory that is both writable and executable, which the
       unit denies. Without them UCX registers memory anew for each chunk, and keeps none. */
    (void)setenv("UCX_MEM_EVENTS", "n", 0);
    ucx->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!ucx->library)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "UCX cannot be loaded: %s", dlerror());
#define LOAD(function)                                                                             \
    {                                                                                              \
        void *found = dlsym(ucx->library, #function);                                              \
        memcpy(&ucx->function, &found, sizeof(found));                                             \
        if (!found)                                                                                \
            missing = #function;                                                                   \
    }
    GB_PEER_UCX_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "%s has no %s", LIBRARY, missing);
    return 0;
}

int gb_peer_ucx_open(struct gb_peer_ucx *ucx, struct gb_error *error)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
    };
    ucp_config_t *config;

    *ucx = (struct gb_peer_ucx){0};
    int r = load(ucx, error);
    if (r < 0) {
        gb_peer_ucx_close(ucx);
        return r;
    }
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status =
            ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucx->context);
        ucx->ucp_config_release(config);
    }
    if (status == UCS_OK)
        return 0;
    r = gb_fail(error, GPUBUF_E_UNSUPPORTED, "UCX cannot be used: %s",
                ucx->ucs_status_string(status));
    ucx->context = NULL;
    gb_peer_ucx_close(ucx);
    return r;
}

/* The library stays loaded: its hooks and registrations would point to unloaded code. */
void gb_peer_ucx_close(struct gb_peer_ucx *ucx)
{
    if (ucx->context)
        ucx->ucp_cleanup(ucx->context);
    *ucx = (struct gb_peer_ucx){0};
}
