#include "client/node/src/addon.h"

#include <stdlib.h>

void gb_addon_release(struct gb_addon *addon)
{
    if (--addon->references > 0)
        return;
    free((void *)addon->clients);
    free((void *)addon->objects);
    free(addon->completions);
    (void)pthread_mutex_destroy(&addon->lock);
    free(addon);
}

void gb_handle_closed(struct gb_addon *addon)
{
    if (--addon->handles == 0 && addon->hook) {
        napi_async_cleanup_hook_handle hook = addon->hook;
        addon->hook = NULL;
        (void)napi_remove_async_cleanup_hook(hook);
    }
    gb_addon_release(addon);
}
