#include "client/peer/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/content.h"

static size_t bucket(const char *name)
{
    return gb_content_sum(name, strlen(name)) %
           (sizeof(((struct gb_copies *)NULL)->buckets) / sizeof(struct gb_copy *));
}

static struct gb_copy **place(const struct gb_copies *copies, const char *name)
{
    struct gb_copy **place = (struct gb_copy **)(uintptr_t)&copies->buckets[bucket(name)];

    while (*place && strcmp((*place)->name, name) != 0)
        place = &(*place)->next;
    return place;
}

const struct gb_copy *gb_copies_find(const struct gb_copies *copies, const char *name)
{
    return *place(copies, name);
}

void gb_copies_remove(struct gb_copies *copies, const char *name)
{
    struct gb_copy **at = place(copies, name), *copy = *at;

    if (!copy)
        return;
    *at = copy->next;
    copies->count--;
    free(copy);
}

bool gb_copies_add(struct gb_copies *copies, const char *name, uint64_t version, const char *origin,
                   uint64_t revision)
{
    struct gb_copy *copy = malloc(sizeof(*copy) + strlen(name) + 1);

    gb_copies_remove(copies, name);
    if (!copy)
        return false;
    *copy = (struct gb_copy){
        .next = copies->buckets[bucket(name)], .version = version, .revision = revision};
    snprintf(copy->origin, sizeof(copy->origin), "%s", origin);
    strcpy(copy->name, name);
    copies->buckets[bucket(name)] = copy;
    copies->count++;
    return true;
}

void gb_copies_end(struct gb_copies *copies)
{
    for (size_t i = 0; i < sizeof(copies->buckets) / sizeof(copies->buckets[0]); i++)
        while (copies->buckets[i])
            gb_copies_remove(copies, copies->buckets[i]->name);
}
