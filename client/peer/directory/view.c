#include "client/peer/directory/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/base/tree.h"

/* ---- nodes ---- */

static struct gb_peer_view_node *node_find(struct gb_peer_view *view, const char *name, bool make)
{
    struct gb_peer_view_node *node = gb_peer_tree_find(&view->nodes, name);

    if (node || !make || strlen(name) >= GB_PEER_NODE_BYTES)
        return node;
    return gb_peer_tree_add(&view->nodes, name, sizeof(*node));
}

static void node_tidy(struct gb_peer_view *view, struct gb_peer_view_node *node)
{
    if (!node || node->port || node->references)
        return;
    gb_peer_tree_remove(&view->nodes, node);
}

static void node_release(struct gb_peer_view *view, struct gb_peer_view_node *node)
{
    if (!node)
        return;
    node->references--;
    node_tidy(view, node);
}

const struct gb_peer_view_node *gb_peer_view_node(struct gb_peer_view *view, const char *name)
{
    struct gb_peer_view_node *node = node_find(view, name, false);

    return node && node->port ? node : NULL;
}

/* ---- entries ---- */

struct gb_peer_entry *gb_peer_view_entry(struct gb_peer_view *view, const char *name, bool make)
{
    struct gb_peer_entry *entry = gb_peer_tree_find(&view->names, name);

    if (entry || !make)
        return entry;
    entry = gb_peer_tree_add(&view->names, name, sizeof(*entry));
    view->name_count += entry != NULL;
    return entry;
}

static void entry_free(void *item)
{
    struct gb_peer_entry *entry = item;

    free(entry->word);
    free(entry->copies);
    free(entry);
}

void gb_peer_view_tidy(struct gb_peer_view *view, struct gb_peer_entry *entry)
{
    if (entry->revision || entry->copy_count || entry->published || entry->publishing ||
        entry->withdrawing || gb_list_linked(&entry->lost))
        return;
    tdelete(entry, &view->names, gb_peer_tree_compare);
    view->name_count--;
    entry_free(entry);
}

/* Descends as tfind does, to where the name would be; the last entry that is greater is next. */
struct after {
    const char *name;
    struct gb_peer_entry *next;
    bool at;
};

static int compare_after(const void *key, const void *item)
{
    struct after *after = (struct after *)(uintptr_t)key;
    int order = strcmp(after->name, ((const struct gb_peer_entry *)item)->name);

    if (order > 0 || (order == 0 && !after->at))
        return 1;
    after->next = (struct gb_peer_entry *)(uintptr_t)item;
    return -1;
}

struct gb_peer_entry *gb_peer_view_next(struct gb_peer_view *view, const char *name, bool at)
{
    struct after after = {.name = name, .at = at};

    (void)tfind(&after, &view->names, compare_after);
    return after.next;
}

static void entry_forget(struct gb_peer_view *view, struct gb_peer_entry *entry)
{
    struct gb_peer_view_node *node = entry->node;

    entry->node = NULL;
    entry->revision = entry->lease = entry->version = entry->bytes = entry->serial = 0;
    entry->since_ms = 0;
    node_release(view, node);
}

static void copy_remove(struct gb_peer_view *view, struct gb_peer_entry *entry, size_t i)
{
    struct gb_peer_view_node *node = entry->copies[i].node;

    entry->copies[i] = entry->copies[--entry->copy_count];
    if (!entry->copy_count) {
        free(entry->copies);
        entry->copies = NULL;
    }
    node_release(view, node);
}

/* ---- values ---- */

struct value {
    struct gb_string host, node, described, content;
    uint64_t port, version, bytes, serial, since;
};

/* False: it cannot be read. */
static bool value_read(const struct gb_peer_view_key *key, struct gb_pool *pool,
                       struct value *value)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct value, host, GB_FIELD_STRING, 0, 0, GB_PEER_HOST_BYTES - 1),
        GB_FIELD(struct value, port, GB_FIELD_UINT, 0, 1, UINT16_MAX),
        GB_FIELD(struct value, node, GB_FIELD_STRING, 0, 0, GB_PEER_NODE_BYTES - 1),
        GB_FIELD(struct value, described, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct value, content, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct value, version, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct value, bytes, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct value, serial, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct value, since, GB_FIELD_UINT, 0, 0, 0),
    };
    struct gb_error unread;

    return gb_json_read_text(key->value, key->value_length, fields,
                             sizeof(fields) / sizeof(fields[0]), "value", pool, value,
                             &unread) == 0;
}

/* ---- keys ---- */

static int take_node(struct gb_peer_view *view, const char *name, const struct value *value)
{
    struct gb_peer_view_node *node = node_find(view, name, value != NULL);

    if (!node)
        return value ? GPUBUF_E_NO_MEMORY : 0;
    node->port = 0;
    if (value) {
        snprintf(node->host, sizeof(node->host), "%s", value->host.text);
        node->port = (uint16_t)value->port;
        node->generation = view->generation;
    }
    node_tidy(view, node);
    return 0;
}

static int take_name(struct gb_peer_view *view, const char *name,
                     const struct gb_peer_view_key *key, const struct value *value,
                     struct gb_peer_entry **changed)
{
    struct gb_peer_entry *entry = gb_peer_view_entry(view, name, value != NULL);
    struct gb_peer_view_node *node = value ? node_find(view, value->node.text, true) : NULL;
    uint64_t had;

    if (value && (!entry || !node))
        return GPUBUF_E_NO_MEMORY;
    /* In a listing, what was known before may be of an etcd that has been restored since. */
    if (!entry || (entry->generation == view->generation && entry->revision > key->revision)) {
        node_tidy(view, node);
        return 0;
    }
    had = entry->revision;
    if (node)
        node->references++;
    entry_forget(view, entry);
    if (value) {
        entry->node = node;
        entry->revision = key->revision;
        entry->lease = key->lease;
        entry->version = value->version;
        entry->bytes = value->bytes;
        entry->serial = value->serial;
        entry->since_ms = value->since;
        entry->generation = view->generation;
    }
    if (entry->revision != had)
        *changed = entry;
    else
        gb_peer_view_tidy(view, entry);
    return 0;
}

static int copy_add(struct gb_peer_entry *entry, struct gb_peer_view_node *node)
{
    struct gb_peer_view_copy *grown =
        reallocarray(entry->copies, entry->copy_count + 1, sizeof(*entry->copies));

    if (!grown)
        return GPUBUF_E_NO_MEMORY;
    entry->copies = grown;
    entry->copies[entry->copy_count++] = (struct gb_peer_view_copy){.node = node};
    node->references++;
    return 0;
}

/* `place`: "NAME@REVISION/NODE"; a name may have '@' and '/' too. */
static int take_copy(struct gb_peer_view *view, char *place, const struct value *value)
{
    char *slash = strrchr(place, '/'), *at;
    struct gb_peer_view_node *node;
    struct gb_peer_entry *entry;
    uint64_t revision;
    size_t i;
    int r = 0;

    if (!slash)
        return 0;
    *slash = '\0';
    at = strrchr(place, '@');
    if (!at)
        return 0;
    *at = '\0';
    revision = strtoull(at + 1, NULL, 10);
    if (strlen(slash + 1) >= GB_PEER_NODE_BYTES)
        return 0; /* another program's: no node has such a name */
    entry = gb_peer_view_entry(view, place, value != NULL);
    node = node_find(view, slash + 1, value != NULL);
    if (!entry || !node) {
        if (entry)
            gb_peer_view_tidy(view, entry);
        return value ? GPUBUF_E_NO_MEMORY : 0;
    }
    for (i = 0; i < entry->copy_count; i++)
        if (entry->copies[i].node == node && entry->copies[i].revision == revision)
            break;
    if (value) {
        if (i == entry->copy_count)
            r = copy_add(entry, node);
        if (r == 0) {
            entry->copies[i].revision = revision;
            entry->copies[i].version = value->version;
            entry->copies[i].since_ms = value->since;
            entry->copies[i].generation = view->generation;
        }
    } else if (i < entry->copy_count) {
        copy_remove(view, entry, i);
    }
    gb_peer_view_tidy(view, entry);
    return r;
}

/* `place`: "NAME@REVISION". It is told after the name itself, so that of another revision is an old
   one. */
static int take_word(struct gb_peer_view *view, char *place, const struct value *value)
{
    char *at = strrchr(place, '@');
    struct gb_peer_entry *entry;
    struct gb_peer_word word;
    uint64_t revision;

    if (!at)
        return 0;
    *at = '\0';
    revision = strtoull(at + 1, NULL, 10);
    entry = gb_peer_view_entry(view, place, false);
    if (!entry || entry->revision != revision || !value ||
        !gb_peer_word_read(&word, &value->described, &value->content))
        return 0;
    if (!entry->word)
        entry->word = malloc(sizeof(*entry->word));
    if (!entry->word)
        return GPUBUF_E_NO_MEMORY;
    *entry->word = (struct gb_peer_view_word){revision, word};
    return 0;
}

int gb_peer_view_apply(struct gb_peer_view *view, const struct gb_peer_view_key *key,
                       struct gb_peer_entry **changed)
{
    struct gb_pool pool = {0};
    struct value value = {0};
    bool read = key->value && key->revision && value_read(key, &pool, &value);
    const char *name = strchr(key->key, '/');
    char *place;
    int r = 0;

    *changed = NULL;
    if (!name || !*++name) {
        r = 0;
    } else if (strncmp(key->key, "nodes/", 6) == 0) {
        read &= value.host.text && value.port && strlen(name) < GB_PEER_NODE_BYTES;
        r = take_node(view, name, read ? &value : NULL);
    } else if (strncmp(key->key, "names/", 6) == 0) {
        read &= value.node.text && value.version;
        r = take_name(view, name, key, read ? &value : NULL, changed);
    } else if (strncmp(key->key, "copies/", 7) == 0) {
        place = gb_pool_strndup(&pool, name, strlen(name));
        read &= value.version > 0;
        r = place ? take_copy(view, place, read ? &value : NULL) : GPUBUF_E_NO_MEMORY;
    } else if (strncmp(key->key, "words/", 6) == 0) {
        place = gb_pool_strndup(&pool, name, strlen(name));
        r = place ? take_word(view, place, read ? &value : NULL) : GPUBUF_E_NO_MEMORY;
    }
    gb_pool_end(&pool);
    return r;
}

/* ---- all of them ---- */

void gb_peer_view_each(struct gb_peer_view *view, void (*each)(void *entry, void *user), void *user)
{
    gb_peer_tree_each(view->names, each, user);
}

void gb_peer_view_list(struct gb_peer_view *view)
{
    view->generation++;
}

/* The entries that are to go are gathered first: a tree must not change while it is walked. */
struct gathered {
    struct gb_peer_view *view;
    void **items;
    size_t count, room;
};

static void gather(struct gathered *gathered, void *item)
{
    void **grown;

    if (gathered->count == gathered->room) {
        gathered->room = gathered->room ? 2 * gathered->room : 64;
        grown = reallocarray(gathered->items, gathered->room, sizeof(void *));
        if (!grown) {
            gathered->room = gathered->count;
            return; /* it stays, and goes with the next listing */
        }
        gathered->items = grown;
    }
    gathered->items[gathered->count++] = item;
}

static void gather_old(void *item, void *user)
{
    struct gb_peer_entry *entry = item;
    struct gathered *gathered = user;
    struct gb_peer_view *view = gathered->view;
    size_t i;

    for (i = entry->copy_count; i-- > 0;)
        if (entry->copies[i].generation != view->generation)
            copy_remove(view, entry, i);
    if (entry->generation != view->generation || !entry->revision)
        gather(gathered, entry);
}

static void gather_node(void *item, void *user)
{
    struct gathered *gathered = user;
    struct gb_peer_view_node *node = item;

    if (node->generation != gathered->view->generation)
        gather(gathered, node);
}

void gb_peer_view_listed(struct gb_peer_view *view,
                         void (*each)(void *user, struct gb_peer_entry *entry), void *user)
{
    struct gathered old = {.view = view};
    struct gb_peer_entry *entry;
    struct gb_peer_view_node *node;
    bool had;
    size_t i;

    gb_peer_tree_each(view->nodes, gather_node, &old);
    for (i = 0; i < old.count; i++) {
        node = old.items[i];
        node->port = 0;
        node_tidy(view, node);
    }
    old.count = 0;
    gb_peer_view_each(view, gather_old, &old);
    for (i = 0; i < old.count; i++) {
        entry = old.items[i];
        had = entry->revision != 0;
        entry_forget(view, entry);
        if (had)
            each(user, entry);
        gb_peer_view_tidy(view, entry);
    }
    free(old.items);
}

size_t gb_peer_view_copies(const struct gb_peer_entry *entry)
{
    size_t count = 0;

    for (size_t i = 0; i < entry->copy_count; i++)
        count += entry->copies[i].revision == entry->revision;
    return count;
}

/* Writes a place of the entry: `which` 0 is the publisher, others are its copies. False: it is no
   place of the revision, or it is `self`. */
static bool write_place(const struct gb_peer_entry *entry, size_t which, const char *self,
                        struct gb_peer_place *place)
{
    const struct gb_peer_view_copy *copy = which ? &entry->copies[which - 1] : NULL;
    const struct gb_peer_view_node *node = copy ? copy->node : entry->node;

    if ((copy && copy->revision != entry->revision) || !node || !node->port ||
        strcmp(node->name, self) == 0)
        return false;
    *place = (struct gb_peer_place){.port = node->port,
                                    .revision = entry->revision,
                                    .version = copy ? copy->version : entry->version,
                                    .bytes = entry->bytes,
                                    .since_ms = copy ? copy->since_ms : entry->since_ms};
    strcpy(place->node, node->name);
    memcpy(place->host, node->host, sizeof(place->host));
    strcpy(place->origin, entry->node->name);
    if (entry->word && entry->word->revision == entry->revision)
        place->word = entry->word->word;
    return true;
}

size_t gb_peer_view_places(const struct gb_peer_entry *entry, const char *self, size_t start,
                           struct gb_peer_place *places, size_t most)
{
    size_t all = entry->copy_count + 1, count = 0;
    bool publisher = false;

    for (size_t i = 0; i < all && count < most; i++) {
        size_t which = (start + i) % all;
        bool written = write_place(entry, which, self, &places[count]);
        publisher = publisher || (written && which == 0);
        count += written;
    }
    if (count == most && !publisher)
        (void)write_place(entry, 0, self, &places[most - 1]);
    return count;
}

struct telling {
    gb_peer_machine_cb each;
    void *user;
};

static void tell_node(void *item, void *user)
{
    const struct telling *telling = user;
    const struct gb_peer_view_node *node = item;

    if (node->port)
        telling->each(telling->user, node->name, node->host, node->port);
}

void gb_peer_view_nodes(struct gb_peer_view *view, gb_peer_machine_cb each, void *user)
{
    struct telling telling = {each, user};

    gb_peer_tree_each(view->nodes, tell_node, &telling);
}

void gb_peer_view_end(struct gb_peer_view *view)
{
    tdestroy(view->names, entry_free);
    tdestroy(view->nodes, free);
    *view = (struct gb_peer_view){0};
}
