#include "client/lib/memory/gpu_own.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256u

struct own_memory {
    struct own_memory *chain;
    uint64_t client; /* its serial */
    unsigned char handle[GB_IPC_BYTES];
    void *base;
    uint64_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_memory *buckets[BUCKETS];

static struct own_memory **bucket_of(const unsigned char *handle)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < GB_IPC_BYTES; i++)
        hash = (hash ^ handle[i]) * UINT64_C(0x100000001b3);
    return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

static struct own_memory *find(const unsigned char *handle)
{
    struct own_memory *own = *bucket_of(handle);

    while (own && memcmp(own->handle, handle, GB_IPC_BYTES) != 0)
        own = own->chain;
    return own;
}

bool gb_gpu_own_find(const unsigned char handle[GB_IPC_BYTES], void **base, uint64_t *bytes)
{
    pthread_mutex_lock(&lock);
    const struct own_memory *own = find(handle);
    if (own) {
        *base = own->base;
        *bytes = own->bytes;
    }
    pthread_mutex_unlock(&lock);
    return own != NULL;
}

int gb_gpu_own_note(const unsigned char handle[GB_IPC_BYTES], uint64_t client, void *base,
                    uint64_t bytes)
{
    struct own_memory *made = malloc(sizeof(*made));

    pthread_mutex_lock(&lock);
    struct own_memory *own = find(handle), **bucket = bucket_of(handle);
    if (own) {
        own->client = client;
    } else if (made) {
        *made =
            (struct own_memory){.chain = *bucket, .client = client, .base = base, .bytes = bytes};
        memcpy(made->handle, handle, GB_IPC_BYTES);
        *bucket = made;
        own = made;
        made = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(made);
    return own ? 0 : GPUBUF_E_NO_MEMORY;
}

void gb_gpu_own_forget(uint64_t client)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS; i++) {
        struct own_memory **link = &buckets[i];
        while (*link) {
            struct own_memory *own = *link;
            if (own->client == client) {
                *link = own->chain;
                free(own);
            } else {
                link = &own->chain;
            }
        }
    }
    pthread_mutex_unlock(&lock);
}
