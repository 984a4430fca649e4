#include "client/node/src/completion.h"

#include <stdlib.h>
#include <string.h>

char *gb_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

void gb_job_free(struct gb_node_job *job)
{
    if (!job)
        return;
    job->end(job);
    free(job->message);
    free(job);
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
    gb_staging_release(completion->block);
    gb_job_free(completion->job);
}

/* Room for one more, and for all that are reserved. With the lock held. */
static bool make_room(struct gb_addon *addon)
{
    size_t needed = addon->completion_count + addon->reserved + 1;

    if (needed <= addon->completion_capacity)
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

bool gb_reserve(struct gb_addon *addon)
{
    pthread_mutex_lock(&addon->lock);
    bool made = make_room(addon);
    addon->reserved += made;
    pthread_mutex_unlock(&addon->lock);
    return made;
}

void gb_unreserve(struct gb_addon *addon)
{
    pthread_mutex_lock(&addon->lock);
    addon->reserved--;
    pthread_mutex_unlock(&addon->lock);
}

static bool complete(struct gb_addon *addon, const struct gb_completion *completion, bool reserved)
{
    struct gb_completion one = *completion;

    pthread_mutex_lock(&addon->lock);
    addon->reserved -= reserved;
    bool added = !addon->closing && make_room(addon);
    if (added) {
        addon->completions[addon->completion_count++] = one;
        if (!pthread_equal(addon->thread, pthread_self()))
            (void)uv_async_send(&addon->from_elsewhere);
    }
    pthread_mutex_unlock(&addon->lock);
    if (!added)
        gb_completion_drop(&one);
    return added;
}

void gb_complete(struct gb_addon *addon, const struct gb_completion *completion)
{
    (void)complete(addon, completion, true);
}

bool gb_complete_event(struct gb_addon *addon, const struct gb_completion *completion)
{
    return complete(addon, completion, false);
}

size_t gb_take_completions(struct gb_addon *addon, struct gb_completion *taken, size_t most)
{
    pthread_mutex_lock(&addon->lock);
    size_t count = addon->completion_count < most ? addon->completion_count : most;
    if (count > 0) {
        memcpy(taken, addon->completions, count * sizeof(*taken));
        addon->completion_count -= count;
        memmove(addon->completions, addon->completions + count,
                addon->completion_count * sizeof(*taken));
    }
    pthread_mutex_unlock(&addon->lock);
    return count;
}

bool gb_has_completions(struct gb_addon *addon)
{
    pthread_mutex_lock(&addon->lock);
    bool has = addon->completion_count > 0;
    pthread_mutex_unlock(&addon->lock);
    return has;
}
