#include "daemon/serve/missing.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "proto/base/utf8.h"

static struct gb_missing *find(const struct gb_hash_table *table, uint64_t hash, const char *name,
                               size_t length)
{
    for (struct gb_hash_link *link = gb_hash_first(table, hash); link; link = gb_hash_next(link)) {
        struct gb_missing *missing = GB_CONTAINER(link, struct gb_missing, in_table);

        if (missing->name_length == length && memcmp(missing->name, name, length) == 0)
            return missing;
    }
    return NULL;
}

struct gb_missing *gb_missing_find(const struct gb_missings *missings, const char *name,
                                   size_t length)
{
    const struct gb_hash_table *table = &missings->table;

    return table->count ? find(table, gb_hash_bytes(name, length), name, length) : NULL;
}

static struct gb_missing *missing_new(struct gb_missings *missings, uint64_t hash, const char *name,
                                      size_t length)
{
    struct gb_missing *missing = calloc(1, sizeof(*missing) + length + 1);

    if (!missing || !gb_hash_insert(&missings->table, &missing->in_table, hash)) {
        free(missing);
        return NULL;
    }
    missing->by_nobody = true;
    missing->name_length = length;
    memcpy(missing->name, name, length);
    return missing;
}

static void enter(struct gb_missings *missings, struct gb_awaited *awaited)
{
    struct gb_missing *missing = awaited->missing;
    struct gb_link *list = awaited->asks ? &missing->asking : &missing->others;

    /* A request that says a name often is there once: others walk the list. */
    if (!gb_list_empty(list) &&
        GB_CONTAINER(list->prev, struct gb_awaited, link)->wait == awaited->wait)
        return;
    gb_list_append(list, &awaited->link);
    if (awaited->asks && !missing->declined)
        gb_provider_want(&missings->providers, missing, awaited->by->user);
}

int gb_missing_await(struct gb_missings *missings, struct gb_awaited *awaited, const char *name,
                     size_t length)
{
    uint64_t hash = gb_hash_bytes(name, length);
    struct gb_missing *missing = find(&missings->table, hash, name, length);

    if (!missing)
        missing = missing_new(missings, hash, name, length);
    if (!missing)
        return GPUBUF_E_NO_MEMORY;
    missing->count++;
    awaited->missing = missing;
    enter(missings, awaited);
    return 0;
}

void gb_missing_leave(struct gb_missings *missings, struct gb_awaited *awaited)
{
    struct gb_missing *missing = awaited->missing;

    gb_list_remove(&awaited->link);
    if (gb_list_empty(&missing->to_wake))
        gb_list_remove(&missing->woken);
    if (--missing->count > 0)
        return;
    gb_provider_over(missing, true);
    if (!missing->declined)
        gb_hash_remove(&missings->table, &missing->in_table);
    free(missing->message);
    free(missing);
}

static void wake(struct gb_missings *missings, struct gb_missing *missing)
{
    gb_list_move(&missing->asking, &missing->to_wake);
    gb_list_move(&missing->others, &missing->to_wake);
    if (!gb_list_linked(&missing->woken) && !gb_list_empty(&missing->to_wake))
        gb_list_append(&missings->woken, &missing->woken);
}

void gb_missing_sealed(struct gb_missings *missings, const struct gb_object *object,
                       const struct gb_provider *by)
{
    struct gb_missing *missing = gb_missing_find(missings, object->name, object->name_length);

    if (!missing)
        return;
    if (missing->provider) {
        uint64_t ms = gb_now_ms() - missing->asked_ms;

        missings->providers.provided++;
        missings->providers.provided_ms += ms;
        gb_loads_provided(&missings->providers.loads, missing->name, missing->prefix_length, ms);
    }
    gb_provider_over(missing, missing->provider != by);
    wake(missings, missing);
}

void gb_missing_gone(struct gb_missings *missings, const struct gb_object *object)
{
    struct gb_missing *missing = gb_missing_find(missings, object->name, object->name_length);

    if (missing)
        gb_provider_want(&missings->providers, missing, NULL);
}

int gb_missing_decline(struct gb_missings *missings, struct gb_missing *missing, int code,
                       const char *message)
{
    char *copy = strdup(message);

    if (!copy)
        return GPUBUF_E_NO_MEMORY;
    free(missing->message);
    missing->message = copy;
    gb_utf8_make_plain(copy); /* others are shown it */
    if (code == GPUBUF_E_TIMEOUT)
        return 0;
    missing->declined = code;
    gb_hash_remove(&missings->table, &missing->in_table);
    missings->providers.declined++;
    gb_provider_over(missing, false);
    wake(missings, missing);
    return 0;
}

struct gb_wait *gb_missing_next(struct gb_missings *missings)
{
    struct gb_missing *missing;
    struct gb_awaited *awaited;

    if (gb_list_empty(&missings->woken))
        return NULL;
    missing = GB_CONTAINER(missings->woken.next, struct gb_missing, woken);
    awaited = GB_CONTAINER(missing->to_wake.next, struct gb_awaited, link);
    gb_list_remove(&awaited->link);
    if (gb_list_empty(&missing->to_wake))
        gb_list_remove(&missing->woken);
    enter(missings, awaited); /* the request may have to wait on */
    return awaited->wait;
}
