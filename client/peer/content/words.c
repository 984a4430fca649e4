#include "client/peer/content/words.h"

#include <stdlib.h>
#include <string.h>

#include "client/peer/base/tree.h"
#include "client/peer/content/digest.h"
#include "proto/base/list.h"

struct asker {
    struct asker *next;
    gb_peer_word_cb callback;
    void *user;
};

struct item {
    const char *name;
    struct gb_peer_words *words;
    struct gb_link queued; /* while it waits for its turn */
    uint64_t version;
    struct gb_peer_word word;
    struct gb_peer_lease *lease; /* NULL: the word is there */
    struct gb_peer_digest *digest;
    struct asker *askers;
};

struct gb_peer_words {
    uv_loop_t *loop;
    struct gb_peer_directory *directory;
    void *items; /* by name (tree.h) */
    struct item *now;
    struct gb_link queue; /* struct item */
};

static void begin_next(struct gb_peer_words *words);

static void answer(struct item *item, const struct gb_error *error)
{
    while (item->askers) {
        struct asker *asker = item->askers;
        item->askers = asker->next;
        asker->callback(asker->user, error ? NULL : &item->word, error);
        free(asker);
    }
}

/* Ends its work, if there is any. */
static void stop(struct item *item)
{
    struct gb_peer_words *words = item->words;

    gb_peer_digest_end(item->digest);
    gb_peer_lease_drop(item->lease);
    item->digest = NULL;
    item->lease = NULL;
    if (words->now == item)
        words->now = NULL;
    gb_list_remove(&item->queued);
}

static void end(struct item *item, const struct gb_error *error)
{
    tdelete(item, &item->words->items, gb_peer_tree_compare);
    stop(item);
    answer(item, error);
    free(item);
}

static void on_digest(void *user)
{
    struct item *item = user;
    struct gb_peer_words *words = item->words;
    struct gb_peer_directory *directory = words->directory;
    struct gb_error error;

    int r = gb_peer_digest_sum(item->digest, item->word.content, &error);
    if (r < 0) {
        end(item, &error);
    } else if (r > 0) {
        stop(item);
        item->word.told = true;
        directory->methods->word(directory, item->name, item->version, &item->word);
        answer(item, NULL);
    }
    begin_next(words);
}

/* Begins the next, unless one is under way. */
static void begin_next(struct gb_peer_words *words)
{
    struct item *item = GB_LIST_FIRST(&words->queue, struct item, queued);
    struct gb_error error;

    if (words->now || !item)
        return;
    gb_list_remove(&item->queued);
    words->now = item;
    item->digest = gb_peer_digest_new(words->loop, &item->lease->content, on_digest, item);
    if (!item->digest) {
        (void)gb_fail_memory(&error);
        end(item, &error);
    } else if (item->lease->content.bytes == 0) {
        on_digest(item);
    } else {
        gb_peer_digest_move(item->digest, gb_peer_content_chunks(item->lease->content.bytes));
    }
}

/* NULL: memory is out. */
static struct item *make(struct gb_peer_words *words, const struct gb_peer_described *described,
                         struct gb_peer_lease *lease)
{
    struct item *item = gb_peer_tree_add(&words->items, described->name.text, sizeof(*item));

    if (!item)
        return NULL;
    item->words = words;
    item->version = described->version;
    if (!gb_peer_word_describe(&item->word, lease->layout, strlen(lease->layout),
                               gb_peer_described_mode(described), lease->content.bytes,
                               described->label.length ? described->label.text : NULL)) {
        gb_peer_tree_remove(&words->items, item);
        return NULL;
    }
    item->lease = gb_peer_lease_use(lease);
    gb_list_append(&words->queue, &item->queued);
    return item;
}

void gb_peer_words_want(struct gb_peer_words *words, const struct gb_peer_described *described,
                        struct gb_peer_lease *lease, gb_peer_word_cb callback, void *user)
{
    struct gb_peer_directory *directory = words->directory;
    struct asker *asker = callback ? malloc(sizeof(*asker)) : NULL;
    struct gb_error error;
    struct item *item;

    gb_peer_words_changed(words, described->name.text, described->version);
    item = gb_peer_tree_find(&words->items, described->name.text);
    if (!item)
        item = make(words, described, lease);
    if (!item || (callback && !asker)) {
        free(asker);
        (void)gb_fail_memory(&error);
        if (callback)
            callback(user, NULL, &error);
        return;
    }
    if (asker) {
        *asker = (struct asker){item->askers, callback, user};
        item->askers = asker;
    }
    if (!item->lease) { /* the name may have been published anew since */
        directory->methods->word(directory, item->name, item->version, &item->word);
        answer(item, NULL);
    }
    begin_next(words);
}

void gb_peer_words_changed(struct gb_peer_words *words, const char *name, uint64_t version)
{
    struct item *item = gb_peer_tree_find(&words->items, name);
    struct gb_error error;

    if (!item || item->version == version)
        return;
    (void)gb_fail(&error, GPUBUF_E_STALE, "version %llu of %s is no more",
                  (unsigned long long)item->version, name);
    end(item, &error);
    begin_next(words);
}

void gb_peer_words_forget(struct gb_peer_words *words)
{
    struct gb_error error;

    (void)gb_fail(&error, GPUBUF_E_STALE, "the object is no more");
    while (words->items)
        end(*(struct item **)words->items, &error);
}

struct gb_peer_words *gb_peer_words_new(uv_loop_t *loop, struct gb_peer_directory *directory)
{
    struct gb_peer_words *words = calloc(1, sizeof(*words));

    if (!words)
        return NULL;
    words->loop = loop;
    words->directory = directory;
    return words;
}

void gb_peer_words_free(struct gb_peer_words *words)
{
    if (!words)
        return;
    gb_peer_words_forget(words);
    free(words);
}
