#include "client/node/src/watching.h"

#include <stdlib.h>

#include "client/node/src/completion.h"

void gb_watching_add(struct gb_watching *watch)
{
    pthread_mutex_t *lock = &watch->client->addon->lock;

    pthread_mutex_lock(lock);
    watch->next = watch->client->watches;
    watch->client->watches = watch;
    pthread_mutex_unlock(lock);
}

void gb_watching_remove(struct gb_watching *watch)
{
    pthread_mutex_t *lock = &watch->client->addon->lock;
    struct gb_watching **link = &watch->client->watches;

    pthread_mutex_lock(lock);
    while (*link != watch)
        link = &(*link)->next;
    *link = watch->next;
    pthread_mutex_unlock(lock);
    free(watch);
}

struct gb_watching *gb_watching_find(struct gb_node_client *client, uint64_t number)
{
    pthread_mutex_lock(&client->addon->lock);
    struct gb_watching *watch = client->watches;
    while (watch && watch->number != number)
        watch = watch->next;
    pthread_mutex_unlock(&client->addon->lock);
    return watch;
}

void gb_watches_free(struct gb_node_client *client)
{
    while (client->watches)
        gb_watching_remove(client->watches);
}

void gb_watching_answered(struct gpubuf_client *client, int status, uint64_t number,
                          struct gb_watching *watch)
{
    struct gb_addon *addon = watch->client->addon;

    pthread_mutex_lock(&addon->lock);
    watch->number = number;
    pthread_mutex_unlock(&addon->lock);
    gb_complete(addon, &(struct gb_completion){
                           .type = GB_DONE_PLAIN,
                           .id = watch->id,
                           .status = status,
                           .value = (double)number,
                           .text = status < 0 ? gb_copy(gpubuf_errmsg(client)) : NULL,
                       });
    if (status < 0)
        gb_watching_remove(watch);
}
