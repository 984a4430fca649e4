#include "client/node/src/completion.h"

#include <stdlib.h>
#include <string.h>

char *gb_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

void gb_completion_drop(struct gb_completion *completion)
{
    gpubuf_release(completion->object);
    if (completion->objects)
        gpubuf_release_many(completion->objects, completion->count);
    free((void *)completion->objects);
    free(completion->errors);
    free(completion->text);
    free(completion->info);
    gb_staging_give(completion->block);
}

static bool make_room(struct gb_addon *addon)
{
    if (addon->completion_count < addon->completion_capacity)
        return true;
    size_t capacity = addon->completion_capacity ? 2 * addon->completion_capacity : 64;
    struct gb_completion *completions =
        realloc(addon->completions, capacity * sizeof(*completions));
    if (!completions)
        return false;
    addon->completions = completions;
    addon->completion_capacity = capacity;
    return true;
}

void gb_complete(struct gb_addon *addon, const struct gb_completion *completion)
{
    struct gb_completion one = *completion;

    pthread_mutex_lock(&addon->lock);
    bool added = !addon->closing && make_room(addon);
    if (added) {
        addon->completions[addon->completion_count++] = one;
        if (!pthread_equal(addon->thread, pthread_self()))
            (void)uv_async_send(&addon->from_elsewhere);
    }
    pthread_mutex_unlock(&addon->lock);
    if (!added)
        gb_completion_drop(&one);
}

bool gb_has_completions(struct gb_addon *addon)
{
    pthread_mutex_lock(&addon->lock);
    bool has = addon->completion_count > 0;
    pthread_mutex_unlock(&addon->lock);
    return has;
}
