/*
 * An index of names: found by name in constant time, walked in byte order from any place. Pure; not
 * thread-safe; the entries belong to the caller, who embeds a struct gb_name in them.
 */
#ifndef GB_NAMES_H
#define GB_NAMES_H

#include "daemon/base/hash.h"
#include "daemon/base/tree.h"

struct gb_name {
    struct gb_hash_link link;
    struct gb_tree_node node; /* its priority is the hash, which no client can guess */
    const char *text;         /* the caller's; must not change while indexed */
    size_t length;
};

struct gb_names {
    struct gb_hash_table table;
    struct gb_tree_node *root;
    bool unordered; /* for many names: until gb_names_order() they are only found by name */
};

/* A zeroed struct gb_names is an empty index. */
void gb_names_end(struct gb_names *names); /* frees the table, not the entries */
/* False if memory is out. The name (text and length set) must not be there yet. */
bool gb_names_insert(struct gb_names *names, struct gb_name *name);
void gb_names_remove(struct gb_names *names, struct gb_name *name);
/* Orders the names that were inserted while the index was `unordered`. It costs much less than to
   insert each into an ordered one. False if memory is out: the index stays unordered. */
bool gb_names_order(struct gb_names *names);
/* One of the names, in no order, which is found and removed at once even if the index is unordered;
   NULL if there is none. */
struct gb_name *gb_names_any(const struct gb_names *names);
struct gb_name *gb_names_find(const struct gb_names *names, const char *text, size_t length);
size_t gb_names_count(const struct gb_names *names);
/* The first name ≥ the text, or, with `after`, > the text; NULL if there is none. The order is that
   of unsigned bytes, a prefix before longer names. O(log n) expected. */
struct gb_name *gb_names_lower(const struct gb_names *names, const char *text, size_t length,
                               bool after);
struct gb_name *gb_names_next(const struct gb_name *name);

#endif
