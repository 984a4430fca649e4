#include "daemon/base/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/list.h"

static struct gb_name *name_of(const struct gb_tree_node *node)
{
    return node ? GB_CONTAINER(node, struct gb_name, node) : NULL;
}

static int compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t common = a_length < b_length ? a_length : b_length;
    int order = common ? memcmp(a, b, common) : 0;

    return order ? order : (a_length > b_length) - (a_length < b_length);
}

void gb_names_end(struct gb_names *names)
{
    gb_hash_end(&names->table);
    names->root = NULL;
}

/* Puts it above all others, so that they are one chain. */
static void put_on_top(struct gb_names *names, struct gb_name *name)
{
    name->node = (struct gb_tree_node){.left = names->root};
    if (names->root)
        names->root->parent = &name->node;
    names->root = &name->node;
}

bool gb_names_insert(struct gb_names *names, struct gb_name *name)
{
    struct gb_tree_node *parent = NULL, **place = &names->root;
    uint64_t hash = gb_hash_bytes(name->text, name->length);

    if (!gb_hash_insert(&names->table, &name->link, hash))
        return false;
    if (names->unordered) {
        put_on_top(names, name);
        return true;
    }
    while (*place) {
        const struct gb_name *other = name_of(*place);
        int order = compare(name->text, name->length, other->text, other->length);

        assert(order);
        parent = *place;
        place = order < 0 ? &parent->left : &parent->right;
    }
    name->node.priority = hash;
    gb_tree_attach(&names->root, parent, place, &name->node, NULL);
    return true;
}

void gb_names_remove(struct gb_names *names, struct gb_name *name)
{
    gb_hash_remove(&names->table, &name->link);
    gb_tree_remove(&names->root, &name->node, NULL);
}

struct gb_name *gb_names_find(const struct gb_names *names, const char *text, size_t length)
{
    struct gb_hash_link *link;

    for (link = gb_hash_first(&names->table, gb_hash_bytes(text, length)); link;
         link = gb_hash_next(link)) {
        struct gb_name *name = GB_CONTAINER(link, struct gb_name, link);

        if (!compare(name->text, name->length, text, length))
            return name;
    }
    return NULL;
}

/* ---- many at once ---- */

enum { KEY_OCTETS = 7 };

/* A name, and some of its octets as a number: nearly all are compared without a look at them, which
   would be a miss of the processor's cache. */
struct key {
    uint64_t octets; /* in the lowest one, how many there are */
    struct gb_name *name;
};

static uint64_t octets_at(const struct gb_name *name, size_t at)
{
    size_t left = name->length > at ? name->length - at : 0;
    size_t count = left < KEY_OCTETS ? left : KEY_OCTETS;
    uint64_t octets = 0;

    for (size_t i = 0; i < KEY_OCTETS; i++)
        octets = octets << 8 | (i < count ? (unsigned char)name->text[at + i] : 0);
    return octets << 8 | count;
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *left = a, *right = b;

    return (left->octets > right->octets) - (left->octets < right->octets);
}

/* Sorts names that have their first `at` octets in common. */
static void sort_from(struct key *keys, size_t count, size_t at)
{
    bool sorted = true;

    for (size_t i = 0; i < count; i++) {
        keys[i].octets = octets_at(keys[i].name, at);
        sorted &= i == 0 || keys[i - 1].octets <= keys[i].octets;
    }
    if (!sorted)
        qsort(keys, count, sizeof(*keys), compare_keys);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && keys[end].octets == keys[i].octets;)
            end++;
        if (end > i + 1)
            sort_from(keys + i, end - i, at + KEY_OCTETS);
    }
}

bool gb_names_order(struct gb_names *names)
{
    size_t count = names->table.count, left = count;
    struct key *keys = malloc((count + 1) * sizeof(*keys));
    struct gb_tree_node *last = NULL;

    if (!keys)
        return false;
    for (struct gb_tree_node *node = names->root; node; node = node->left)
        keys[--left].name = name_of(node);
    sort_from(keys, count, 0);
    names->root = NULL;
    for (size_t i = 0; i < count; i++) {
        struct gb_name *name = keys[i].name;

        name->node.priority = name->link.hash;
        gb_tree_attach(&names->root, last, last ? &last->right : &names->root, &name->node, NULL);
        last = &name->node;
    }
    free(keys);
    names->unordered = false;
    return true;
}

struct gb_name *gb_names_any(const struct gb_names *names)
{
    return name_of(names->root);
}

size_t gb_names_count(const struct gb_names *names)
{
    return names->table.count;
}

struct gb_name *gb_names_lower(const struct gb_names *names, const char *text, size_t length,
                               bool after)
{
    struct gb_tree_node *node = names->root, *found = NULL;

    while (node) {
        const struct gb_name *name = name_of(node);
        int order = compare(name->text, name->length, text, length);

        if (order > 0 || (order == 0 && !after)) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return name_of(found);
}

struct gb_name *gb_names_next(const struct gb_name *name)
{
    return name_of(gb_tree_next(&name->node));
}
