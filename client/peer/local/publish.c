#include "client/peer/local/publish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/base/seldom.h"
#include "client/peer/base/tree.h"
#include "proto/base/list.h"

/* Names that are being published: two transactions of etcd's, one under way and the next one. */
#define AT_ONCE 200
#define AGAIN_MS 1000
/* In place of a version: that of a former daemon, which equals none of the present one. */
#define ANOTHERS UINT64_MAX

/* A user who has objects that are shared, or were. */
struct owner {
    struct gb_link of_all;
    uint64_t uid;
    uint64_t names;       /* publications with an object that is shared */
    struct gb_link queue; /* struct publication */
};

/* An object of this machine's that is shared, or was and is still in the directory. */
struct publication {
    const char *name;
    struct gb_link queued; /* of its owner's queue */
    struct gb_peer_publisher *publisher;
    struct owner *owner;
    uint64_t version, bytes; /* of the object; version 0: no object is shared */
    uint64_t published;      /* the version that the directory has; 0: none */
    uint64_t sent;           /* the version in the last request to publish */
    uint64_t refused;        /* the version that was not published, since another machine has the
                                name */
    uint64_t revision;       /* of the published version */
    uint64_t generation;     /* of the watch that told it last */
    bool others;             /* the name was another machine's since it was last this one's */
    bool busy;
};

struct gb_peer_publisher {
    const struct gb_peer_parts *parts;
    unsigned user_names;   /* that one user may have published */
    void *names;           /* a tree by name (tree.h) */
    struct gb_link owners; /* struct owner, in turn */
    uv_timer_t timer;
    unsigned busy;
    uint64_t generation, failures, over, taken;
};

static void publish_queued(struct gb_peer_publisher *publisher);

/* ---- owners ---- */

/* Until the publisher ends. NULL: memory is out. */
static struct owner *find_owner(struct gb_peer_publisher *publisher, uint64_t uid)
{
    struct owner *made;

    GB_LIST_EACH(&publisher->owners, struct owner, owner, of_all)
        if (owner->uid == uid)
            return owner;
    made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->uid = uid;
    gb_list_append(&publisher->owners, &made->of_all);
    return made;
}

/* The next of the queue of the owner whose turn it is; NULL: there is none. */
static struct publication *next_queued(struct gb_peer_publisher *publisher)
{
    GB_LIST_EACH(&publisher->owners, struct owner, owner, of_all) {
        struct publication *publication = GB_LIST_FIRST(&owner->queue, struct publication, queued);
        if (!publication)
            continue;
        gb_list_remove(&publication->queued);
        gb_list_remove(&owner->of_all); /* its next turn comes after the others' */
        gb_list_append(&publisher->owners, &owner->of_all);
        return publication;
    }
    return NULL;
}

/* ---- publications ---- */

/* The version of the object that is shared, for which the owner is charged; 0: there is none. */
static void set_version(struct publication *publication, uint64_t version)
{
    publication->owner->names += version != 0;
    publication->owner->names -= publication->version != 0;
    publication->version = version;
}

/* NULL: memory is out. */
static struct publication *make(struct gb_peer_publisher *publisher, const char *name,
                                struct owner *owner)
{
    struct publication *publication =
        gb_peer_tree_add(&publisher->names, name, sizeof(*publication));

    if (!publication)
        return NULL;
    publication->publisher = publisher;
    publication->owner = owner;
    return publication;
}

static void tidy(struct gb_peer_publisher *publisher, struct publication *publication)
{
    if (publication->version || publication->revision || publication->busy ||
        gb_list_linked(&publication->queued))
        return;
    gb_peer_tree_remove(&publisher->names, publication);
}

/* Whether the directory is to be told: it has another version than the daemon. */
static bool is_behind(const struct publication *publication)
{
    return publication->version != publication->published &&
           (!publication->version || publication->version != publication->refused);
}

static void queue(struct publication *publication)
{
    if (!publication->busy && !gb_list_linked(&publication->queued))
        gb_list_append(&publication->owner->queue, &publication->queued);
}

/* ---- the directory ---- */

static void on_again(uv_timer_t *timer);

static void say_refused(struct gb_peer_publisher *publisher, const char *name, uint64_t version,
                        const char *why)
{
    gb_peer_log_another(GB_LOG_WARNING, uv_now(publisher->parts->loop), "not published",
                        GB_LOG_TEXT("name", name), GB_LOG_NUMBER("version", version),
                        GB_LOG_TEXT("why", why));
}

/* The name is this machine's now. If it was another's, programs that knew it read other content. */
static void take_over(struct publication *publication)
{
    struct gb_peer_publisher *publisher = publication->publisher;

    if (!publication->others)
        return;
    publication->others = false;
    publisher->taken++;
    gb_peer_log_another(
        GB_LOG_WARNING, uv_now(publisher->parts->loop), "name taken over from another machine",
        GB_LOG_TEXT("name", publication->name), GB_LOG_NUMBER("version", publication->sent));
}

void gb_peer_publisher_changed(struct gb_peer_publisher *publisher, const char *name,
                               uint64_t revision)
{
    struct publication *publication = gb_peer_tree_find(&publisher->names, name);

    if (publication && !publication->busy && revision && revision != publication->revision)
        publication->others = true;
}

static void on_published(void *user, int status, uint64_t revision, const struct gb_error *error)
{
    struct publication *publication = user;
    struct gb_peer_publisher *publisher = publication->publisher;

    publication->busy = false;
    publisher->busy--;
    if (status == GPUBUF_E_CANCELED)
        return; /* the publisher is about to be freed, too */
    if (status == 0) {
        publication->published = publication->sent;
        publication->revision = revision;
        take_over(publication);
    } else if (status == GPUBUF_E_STALE) {
        publication->refused = publication->sent;
        publication->published = publication->revision = 0;
        publication->others = true;
        say_refused(publisher, publication->name, publication->sent, error->message);
    } else {
        publisher->failures++;
        if (status != GPUBUF_E_UNAVAILABLE)
            say_refused(publisher, publication->name, publication->sent, error->message);
        uv_timer_start(&publisher->timer, on_again, AGAIN_MS, 0);
        tidy(publisher, publication);
        return;
    }
    if (is_behind(publication))
        queue(publication); /* publish_queued may free it */
    else
        tidy(publisher, publication);
    publish_queued(publisher);
}

static void update_directory(struct gb_peer_publisher *publisher, struct publication *publication)
{
    struct gb_peer_directory *directory = publisher->parts->directory;
    struct gb_peer_published object = {publication->name, publication->version, publication->bytes,
                                       publication->revision};

    if (!is_behind(publication))
        return;
    if (publication->version) {
        if (!directory->methods->publish(directory, &object, on_published, publication)) {
            publisher->failures++; /* memory is out */
            uv_timer_start(&publisher->timer, on_again, AGAIN_MS, 0);
            return;
        }
        publication->sent = publication->version;
        publication->busy = true;
        publisher->busy++;
        return;
    }
    if (publication->revision)
        directory->methods->withdraw(directory, publication->name, publication->revision);
    publication->published = publication->revision = 0;
}

static void publish_queued(struct gb_peer_publisher *publisher)
{
    struct publication *publication;

    while (publisher->busy < AT_ONCE && (publication = next_queued(publisher))) {
        update_directory(publisher, publication);
        tidy(publisher, publication);
    }
}

static void visit_behind(void *item, void *user)
{
    struct publication *publication = item;

    if (is_behind(publication))
        queue(publication);
}

static void on_again(uv_timer_t *timer)
{
    struct gb_peer_publisher *publisher = timer->data;

    gb_peer_tree_each(publisher->names, visit_behind, NULL);
    publish_queued(publisher);
}

static void visit_forgotten(void *item, void *user)
{
    struct publication *publication = item;

    publication->published = publication->revision = 0;
}

void gb_peer_publisher_state(struct gb_peer_publisher *publisher, bool is_there, bool forgot)
{
    if (forgot)
        gb_peer_tree_each(publisher->names, visit_forgotten, NULL);
    if (is_there)
        uv_timer_start(&publisher->timer, on_again, 0, 0); /* not inside the directory's call */
}

/* ---- the daemon ---- */

static void visit_anew(void *item, void *user)
{
    struct publication *publication = item;

    set_version(publication, 0);
    publication->refused = 0;
    publication->published = publication->sent = ANOTHERS; /* the next publish replaces
                                                              `revision` */
}

/* The owner of an object that is shared now. NULL: the owner has too many, or memory is out. */
static struct owner *find_payer(struct gb_peer_publisher *publisher, const struct gpubuf_info *info)
{
    struct owner *owner = find_owner(publisher, info->uid);
    char why[128];

    if (!owner || owner->names < publisher->user_names)
        return owner;
    publisher->over++;
    snprintf(why, sizeof(why), "the user %u has %u names in the cluster already (user-names)",
             info->uid, publisher->user_names);
    say_refused(publisher, info->name, info->version, why);
    return NULL;
}

void gb_peer_publisher_on_object(struct gb_peer_publisher *publisher,
                                 const struct gpubuf_info *info, bool shared)
{
    struct publication *publication = gb_peer_tree_find(&publisher->names, info->name);
    struct owner *owner = publication ? publication->owner : NULL;

    if (publication && info->version < publication->version)
        return; /* an older version's event */
    if (shared && (!owner || !publication->version || owner->uid != info->uid)) {
        owner = find_payer(publisher, info);
        shared = owner != NULL;
        if (shared && !publication)
            publication = make(publisher, info->name, owner);
    }
    if (!publication)
        return;
    set_version(publication, 0);
    if (shared) {
        publication->owner = owner;
        set_version(publication, info->version);
    }
    publication->bytes = info->bytes;
    publication->generation = publisher->generation;
    queue(publication);
    publish_queued(publisher);
}

static void visit_untold(void *item, void *user)
{
    struct publication *publication = item;

    if (publication->generation == *(const uint64_t *)user)
        return;
    set_version(publication, 0);
    queue(publication);
}

void gb_peer_publisher_reconnected(struct gb_peer_publisher *publisher, bool anew)
{
    publisher->generation++;
    if (anew)
        gb_peer_tree_each(publisher->names, visit_anew, NULL);
}

void gb_peer_publisher_synced(struct gb_peer_publisher *publisher)
{
    gb_peer_tree_each(publisher->names, visit_untold, &publisher->generation);
    publish_queued(publisher);
}

/* ---- making and ending it ---- */

struct gb_peer_publisher *gb_peer_publisher_new(const struct gb_peer_parts *parts,
                                                unsigned user_names)
{
    struct gb_peer_publisher *publisher = calloc(1, sizeof(*publisher));

    if (!publisher)
        return NULL;
    publisher->parts = parts;
    publisher->user_names = user_names;
    publisher->generation = 1;
    publisher->timer.data = publisher;
    uv_timer_init(parts->loop, &publisher->timer);
    return publisher;
}

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer_publisher *publisher = handle->data;

    tdestroy(publisher->names, free);
    GB_LIST_EACH(&publisher->owners, struct owner, owner, of_all)
        free(owner);
    free(publisher);
}

void gb_peer_publisher_free(struct gb_peer_publisher *publisher)
{
    if (!publisher)
        return;
    uv_close((uv_handle_t *)&publisher->timer, on_closed);
}

static void visit_figures(void *item, void *user)
{
    const struct publication *publication = item;
    struct gb_peer_publish_figures *figures = user;

    if (!publication->version)
        return;
    figures->shared++;
    figures->published += publication->published != 0;
    figures->refused += publication->refused == publication->version;
}

struct gb_peer_publish_figures gb_peer_publisher_figures(const struct gb_peer_publisher *publisher)
{
    struct gb_peer_publish_figures figures = {
        .failures = publisher->failures, .over = publisher->over, .taken = publisher->taken};

    gb_peer_tree_each(publisher->names, visit_figures, &figures);
    return figures;
}
