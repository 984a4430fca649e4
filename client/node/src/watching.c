#include "client/node/src/watching.h"

#include <stdlib.h>

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
