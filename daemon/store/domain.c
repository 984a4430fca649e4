#include "daemon/store/domain.h"

#include <stdlib.h>

bool gb_domain_key_same(const struct gb_domain_key *a, const struct gb_domain_key *b)
{
    return a->device == b->device && a->share == b->share && a->uid == b->uid && a->gid == b->gid &&
           a->mode == b->mode && a->live == b->live;
}

static uint64_t key_hash(const struct gb_domain_key *key)
{
    uint64_t hash = gb_hash_id(key->device->index);

    hash = gb_hash_id(hash ^ (uint64_t)key->share);
    hash = gb_hash_id(hash ^ key->uid);
    hash = gb_hash_id(hash ^ key->gid);
    return gb_hash_id(hash ^ key->mode ^ (uint64_t)key->live << 32);
}

struct gb_domain *gb_domain_get(struct gb_hash_table *domains, const struct gb_domain_key *key)
{
    uint64_t hash = key_hash(key);
    struct gb_domain *domain;

    for (struct gb_hash_link *link = gb_hash_first(domains, hash); link;
         link = gb_hash_next(link)) {
        domain = GB_CONTAINER(link, struct gb_domain, link);
        if (gb_domain_key_same(&domain->key, key))
            return domain;
    }
    domain = calloc(1, sizeof(*domain));
    if (!domain)
        return NULL;
    domain->key = *key;
    domain->key.own = false;
    domain->arena = gb_arena_new();
    if (!domain->arena || !gb_hash_insert(domains, &domain->link, hash)) {
        gb_arena_free(domain->arena);
        free(domain);
        return NULL;
    }
    return domain;
}

void gb_domain_release(struct gb_hash_table *domains, struct gb_domain *domain)
{
    if (domain->segments > 0)
        return;
    gb_hash_remove(domains, &domain->link);
    gb_arena_free(domain->arena);
    free(domain);
}
