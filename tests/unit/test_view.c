/* The view that a peer has of the others' keys (client/peer/directory/view.h), by events made by
   hand. */
#include "tests/cases.h"

#include "client/peer/directory/view.c"

static struct gb_peer_entry *take_raw(struct gb_peer_view *view, const char *key, const char *value,
                                      uint64_t revision, uint64_t lease)
{
    struct gb_peer_view_key one = {.key = key,
                                   .value = value,
                                   .value_length = value ? strlen(value) : 0,
                                   .revision = revision,
                                   .lease = lease};
    struct gb_peer_entry *changed;

    assert_int_equal(gb_peer_view_apply(view, &one, &changed), 0);
    return changed;
}

/* Whether the name's revision is another now. */
static bool take(struct gb_peer_view *view, const char *key, const char *value, uint64_t revision)
{
    struct gb_peer_entry *changed = take_raw(view, key, value, revision, 1);

    if (changed)
        gb_peer_view_tidy(view, changed);
    return changed != NULL;
}

static uint64_t revision_of(struct gb_peer_view *view, const char *name)
{
    const struct gb_peer_entry *entry = gb_peer_view_entry(view, name, false);

    return entry ? entry->revision : 0;
}

#define OF_A "{\"node\":\"a\",\"version\":3,\"bytes\":10,\"serial\":1,\"since\":99}"
#define AT_A "{\"host\":\"h\",\"port\":7}"

/* RELIABILITY.md: Other machines 23 */
TEST(test_a_name_comes_is_replaced_and_goes)
{
    struct gb_peer_view view = {0};

    assert_true(take(&view, "names/x", OF_A, 5));
    assert_false(take(&view, "names/x", OF_A, 5)); /* told twice */
    assert_true(take(&view, "names/x", OF_A, 8));
    assert_false(take(&view, "names/x", OF_A, 6)); /* an older story */
    assert_false(take(&view, "names/x", NULL, 7));
    assert_int_equal(revision_of(&view, "x"), 8);
    assert_true(take(&view, "names/x", NULL, 9));
    assert_false(take(&view, "names/x", NULL, 9));
    assert_int_equal(view.name_count, 0);
    assert_null(view.nodes);
    gb_peer_view_end(&view);
}

TEST(test_places_are_of_the_revision_and_of_nodes_that_are_there)
{
    struct gb_peer_view view = {0};
    struct gb_peer_place places[4];

    take(&view, "names/x@1/y", OF_A, 5);
    const struct gb_peer_entry *entry = gb_peer_view_entry(&view, "x@1/y", false);
    assert_int_equal(gb_peer_view_places(entry, "me", 0, places, 4), 0); /* a has no address */
    take(&view, "nodes/a", AT_A, 4);
    take(&view, "nodes/b", "{\"host\":\"i\",\"port\":8}", 6);
    take(&view, "copies/x@1/y@5/b", "{\"version\":9,\"since\":100}", 7);
    take(&view, "copies/x@1/y@4/c", "{\"version\":8}", 7); /* of a former revision */
    assert_int_equal(gb_peer_view_copies(entry), 1);
    assert_int_equal(gb_peer_view_places(entry, "me", 0, places, 4), 2);
    assert_string_equal(places[0].node, "a");
    assert_int_equal(places[0].since_ms, 99);
    assert_string_equal(places[1].node, "b");
    assert_string_equal(places[1].origin, "a");
    assert_int_equal(places[1].version, 9);
    assert_int_equal(places[1].since_ms, 100);
    assert_int_equal(gb_peer_view_places(entry, "me", 1, places, 1), 1);
    assert_string_equal(places[0].node, "a"); /* who could begin elsewhere */
    assert_int_equal(gb_peer_view_places(entry, "me", 1, places, 4), 2);
    assert_string_equal(places[0].node, "b"); /* another begins elsewhere */
    assert_int_equal(gb_peer_view_places(entry, "b", 0, places, 4), 1);
    take(&view, "nodes/b", NULL, 8);
    assert_int_equal(gb_peer_view_places(entry, "me", 0, places, 4), 1);
    gb_peer_view_end(&view);
}

#define WORD                                                                                       \
    "{\"described\":\"AAECAwQFBgcICQoLDA0ODw==\","                                                 \
    "\"content\":\"8PHy8/T19vf4+fr7/P3+/w==\"}"

TEST(test_the_origins_word_is_of_a_revision)
{
    struct gb_peer_view view = {0};
    struct gb_peer_place place;

    take(&view, "words/x@5", WORD, 4); /* of no name: it is nobody's */
    take(&view, "nodes/a", AT_A, 4);
    take(&view, "names/x", OF_A, 5);
    const struct gb_peer_entry *entry = gb_peer_view_entry(&view, "x", false);
    assert_int_equal(gb_peer_view_places(entry, "me", 0, &place, 1), 1);
    assert_false(place.word.told);
    take(&view, "words/x@4", WORD, 6);
    assert_int_equal(gb_peer_view_places(entry, "me", 0, &place, 1), 1);
    assert_false(place.word.told);
    take(&view, "words/x@5", WORD, 7);
    take(&view, "names/x", OF_A, 5); /* told twice */
    assert_int_equal(gb_peer_view_places(entry, "me", 0, &place, 1), 1);
    assert_true(place.word.told);
    assert_int_equal(place.word.described[15], 15);
    assert_int_equal(place.word.content[1], 0xf1);
    take(&view, "words/x@5", "{\"described\":\"AAAA\",\"content\":\"!!\"}", 8);
    take(&view, "words/x@5", NULL, 9);
    take(&view, "words/x@4", WORD, 10); /* a listing may tell an old one last */
    assert_int_equal(gb_peer_view_places(entry, "me", 0, &place, 1), 1);
    assert_true(place.word.told);
    gb_peer_view_end(&view);
}

TEST(test_the_origin_is_among_the_places)
{
    struct gb_peer_view view = {0};
    struct gb_peer_place places[2];
    char key[64];

    take(&view, "names/x", OF_A, 5);
    take(&view, "nodes/a", AT_A, 4);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof(key), "nodes/b%d", i);
        take(&view, key, AT_A, 6);
        snprintf(key, sizeof(key), "copies/x@5/b%d", i);
        take(&view, key, "{\"version\":9}", 7);
    }
    const struct gb_peer_entry *entry = gb_peer_view_entry(&view, "x", false);
    for (size_t start = 0; start < 10; start++) {
        assert_int_equal(gb_peer_view_places(entry, "me", start, places, 2), 2);
        assert_true(strcmp(places[0].node, "a") == 0 || strcmp(places[1].node, "a") == 0);
    }
    gb_peer_view_end(&view);
}

TEST(test_what_cannot_be_read_is_absent)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"node\":1}",
        "{\"version\":1}",
        "{\"node\":\"a\",\"version\":-1}",
        "{\"node\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
    };
    struct gb_peer_view view = {0};

    take(&view, "names/x", OF_A, 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(take(&view, "names/x", bad[i], 2 + 2 * i));
        assert_int_equal(view.name_count, 0);
        assert_true(take(&view, "names/x", OF_A, 3 + 2 * i));
    }
    assert_false(take(&view, "names/", OF_A, 50));
    assert_false(take(&view, "others/x", OF_A, 50));
    assert_false(take(&view, "copies/x/a", "{}", 50));
    assert_false(take(&view, "copies/x", "{}", 50));
    take(&view, "nodes/q", "{\"host\":\"h\",\"port\":70000}", 50);
    assert_null(gb_peer_view_node(&view, "q"));
    assert_int_equal(view.name_count, 1);
    gb_peer_view_end(&view);
}

/* Keys of another program, with a node's name that no node can have. */
TEST(test_nodes_with_names_too_long_are_absent)
{
    struct gb_peer_view view = {0};
    char key[GB_PEER_NODE_BYTES + 32], name[GB_PEER_NODE_BYTES + 1];

    memset(name, 'a', GB_PEER_NODE_BYTES);
    name[GB_PEER_NODE_BYTES] = '\0';
    snprintf(key, sizeof(key), "nodes/%s", name);
    take(&view, key, AT_A, 1);
    snprintf(key, sizeof(key), "copies/x@5/%s", name);
    take(&view, key, "{\"version\":1}", 2);
    assert_int_equal(view.name_count, 0);
    assert_null(view.nodes);
    name[GB_PEER_NODE_BYTES - 1] = '\0';
    snprintf(key, sizeof(key), "nodes/%s", name);
    take(&view, key, AT_A, 3);
    assert_non_null(gb_peer_view_node(&view, name));
    gb_peer_view_end(&view);
}

struct lost {
    struct gb_peer_view *view;
    char names[64];
    bool known; /* node a was, at the first */
};

static void note(void *user, struct gb_peer_entry *entry)
{
    struct lost *lost = user;

    lost->known |= gb_peer_view_node(lost->view, "a") != NULL;
    strcat(lost->names, entry->name);
}

TEST(test_a_listing_forgets_what_it_does_not_tell)
{
    struct gb_peer_view view = {0};
    struct lost lost = {.view = &view};

    take(&view, "nodes/a", AT_A, 1);
    take(&view, "names/x", OF_A, 9);
    take(&view, "names/y", OF_A, 3);
    take(&view, "names/z", OF_A, 4);
    take(&view, "copies/y@3/b", "{\"version\":1}", 5);
    gb_peer_view_list(&view);
    assert_true(take(&view, "names/x", OF_A, 2)); /* etcd was restored: an older one counts */
    assert_false(take(&view, "names/y", OF_A, 3));
    gb_peer_view_listed(&view, note, &lost);
    assert_string_equal(lost.names, "z");
    assert_false(lost.known); /* its node is forgotten before */
    assert_int_equal(revision_of(&view, "x"), 2);
    assert_int_equal(gb_peer_view_copies(gb_peer_view_entry(&view, "y", false)), 0);
    gb_peer_view_end(&view);
}

/* A name that is lost while more is to come stays until it is taken out, and may come again. */
TEST(test_names_that_are_lost)
{
    struct gb_peer_view view = {0};
    struct gb_link lost = {NULL};
    struct gb_peer_entry *entry;
    int count = 0;

    take(&view, "names/x", OF_A, 1);
    take(&view, "names/y", OF_A, 2);
    for (uint64_t revision = 3; revision <= 5; revision += 2) {
        entry = take_raw(&view, "names/x", NULL, revision, 0);
        gb_list_remove(&entry->lost);
        gb_list_append(&lost, &entry->lost);
        gb_peer_view_tidy(&view, entry);
        assert_true(take(&view, "names/x", OF_A, revision + 1));
    }
    entry = take_raw(&view, "names/y", NULL, 7, 0);
    gb_list_append(&lost, &entry->lost);
    gb_peer_view_list(&view);
    gb_peer_view_listed(&view, note, &(struct lost){.view = &view}); /* nothing was told */
    assert_int_equal(view.name_count, 2);
    for (; (entry = GB_LIST_FIRST(&lost, struct gb_peer_entry, lost)); count++) {
        gb_list_remove(&entry->lost);
        gb_peer_view_tidy(&view, entry);
    }
    assert_int_equal(count, 2);
    assert_int_equal(view.name_count, 0);
    gb_peer_view_end(&view);
}

RUN_TESTS(NULL, NULL)
