#include "daemon/memory/recency.h"

#include <assert.h>

static struct gb_link *list_of(const struct gb_recent *entry)
{
    return entry->clean ? &entry->in->clean : &entry->in->dirty;
}

static struct gb_recent *entry_of(struct gb_link *link)
{
    return GB_CONTAINER(link, struct gb_recent, link);
}

static void count_in(struct gb_recent *entry)
{
    entry->in->count++;
    entry->in->bytes += entry->bytes;
    if (entry->clean)
        entry->in->clean_bytes += entry->bytes;
    if (entry->needed)
        entry->in->needed_bytes += entry->bytes;
}

static void put_last(struct gb_recent *entry)
{
    entry->used = ++entry->in->clock;
    gb_list_append(list_of(entry), &entry->link);
    count_in(entry);
}

/* Puts an entry where its last use says. Searches from both ends, since it is mostly near one. */
static void put_by_use(struct gb_recent *entry)
{
    struct gb_link *head = list_of(entry), *older = gb_list_last(head),
                   *newer = gb_list_first(head);

    while (older != head && entry_of(older)->used > entry->used && newer != head &&
           entry_of(newer)->used < entry->used) {
        older = older->prev;
        newer = newer->next;
    }
    if (older == head || entry_of(older)->used < entry->used)
        gb_list_prepend(older, &entry->link);
    else
        gb_list_append(newer, &entry->link);
    count_in(entry);
}

static void remove_entry(struct gb_recent *entry)
{
    gb_list_remove(&entry->link);
    entry->in->count--;
    entry->in->bytes -= entry->bytes;
    if (entry->clean)
        entry->in->clean_bytes -= entry->bytes;
    if (entry->needed)
        entry->in->needed_bytes -= entry->bytes;
}

void gb_recent_enter(struct gb_recency *recency, struct gb_recent *entry, uint64_t bytes)
{
    gb_recent_leave(entry);
    entry->in = recency;
    entry->bytes = bytes;
    entry->used = ++recency->clock;
    if (!entry->holds)
        put_last(entry);
}

void gb_recent_leave(struct gb_recent *entry)
{
    if (entry->in && !entry->holds)
        remove_entry(entry);
    entry->in = NULL;
}

void gb_recent_hold(struct gb_recent *entry)
{
    if (!entry->holds++ && entry->in)
        remove_entry(entry);
}

void gb_recent_drop(struct gb_recent *entry)
{
    assert(entry->holds);
    if (!--entry->holds && entry->in)
        put_last(entry);
}

void gb_recent_drop_unused(struct gb_recent *entry)
{
    assert(entry->holds);
    if (!--entry->holds && entry->in)
        put_by_use(entry);
}

void gb_recent_touch(struct gb_recent *entry)
{
    if (!entry->in || entry->holds)
        return;
    remove_entry(entry);
    put_last(entry);
}

void gb_recent_set(struct gb_recent *entry, bool clean, bool needed)
{
    bool listed = entry->in && !entry->holds;

    if (entry->clean == clean && entry->needed == needed)
        return;
    if (listed)
        remove_entry(entry);
    entry->clean = clean;
    entry->needed = needed;
    if (listed)
        put_by_use(entry);
}

static struct gb_recent *first_of(const struct gb_link *head)
{
    return gb_list_empty(head) ? NULL : entry_of(head->next);
}

struct gb_recent *gb_recency_oldest_clean(const struct gb_recency *recency)
{
    return first_of(&recency->clean);
}

struct gb_recent *gb_recency_oldest_dirty(const struct gb_recency *recency)
{
    return first_of(&recency->dirty);
}

struct gb_recent *gb_recency_oldest(const struct gb_recency *recency)
{
    struct gb_recent *clean = first_of(&recency->clean), *dirty = first_of(&recency->dirty);

    return !clean || (dirty && dirty->used < clean->used) ? dirty : clean;
}

bool gb_recent_before(const struct gb_recent *entry, uint64_t most, uint64_t *count,
                      uint64_t *bytes)
{
    const struct gb_link *lists[] = {&entry->in->clean, &entry->in->dirty};

    assert(!entry->holds);
    *count = *bytes = 0;
    for (int i = 0; i < 2; i++)
        GB_LIST_EACH(lists[i], struct gb_recent, other, link) {
            if (other->used >= entry->used)
                break;
            if (*count == most)
                return false;
            ++*count;
            *bytes += other->bytes;
        }
    return true;
}
