#include "daemon/base/names.h"

#include <assert.h>
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

bool gb_names_insert(struct gb_names *names, struct gb_name *name)
{
    struct gb_tree_node *parent = NULL, **place = &names->root;
    uint64_t hash = gb_hash_bytes(name->text, name->length);

    if (!gb_hash_insert(&names->table, &name->link, hash))
        return false;
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
