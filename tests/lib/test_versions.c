/*
 * Labels and older versions by the library: what create, seal and alias say, what opens them,
 * what is told of them; a client that keeps objects never takes an older version for what the
 * name means.
 */
#include <stdatomic.h>

#include "harness.h"

static int publish(struct gpubuf_client *client, const char *label, unsigned keep, uint64_t content)
{
    struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .label = label, .keep = keep};
    return gpubuf_put_bytes(client, "w", &content, sizeof(content), &options);
}

static uint64_t content(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    uint64_t value;
    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
    memcpy(&value, memory.pointer, sizeof(value));
    return value;
}

struct told_versions {
    char text[512];
    uint64_t versions[8];
    unsigned count;
};

static int note(const struct gpubuf_info *info, void *arg)
{
    struct told_versions *told = arg;
    size_t length = strlen(told->text);
    told->versions[told->count++] = info->version;
    snprintf(told->text + length, sizeof(told->text) - length, "%s%s%s", told->count > 1 ? " " : "",
             info->label,
             info->older  ? "+"
             : info->gone ? "-"
                          : "");
    return 0;
}

static struct told_versions versions(struct gpubuf_client *client)
{
    struct told_versions told = {.count = 0};
    ok(client, gpubuf_versions(client, "w", note, &told));
    return told;
}

TEST(test_opened_by_label_and_version)
{
    CLIENT *client = connect_client();
    struct gpubuf_open_options options = {.size = sizeof(options)};
    struct gpubuf_object *object;
    struct told_versions told;
    char label[16];
    for (uint64_t i = 0; i < 5; i++) {
        snprintf(label, sizeof(label), "step-%u", (unsigned)i);
        ok(client, publish(client, label, 2, i));
    }
    told = versions(client);
    assert_string_equal(told.text, "step-4 step-3+ step-2+");
    options.label = "step-3";
    ok(client, gpubuf_open(client, "w", &options, &object));
    assert_int_equal(content(object), 3);
    assert_string_equal(gpubuf_label(object), "step-3");
    assert_int_equal(gpubuf_object_version(object), told.versions[1]);
    gpubuf_release(object);
    options.label = NULL;
    options.version = told.versions[2];
    ok(client, gpubuf_open(client, "w", &options, &object));
    assert_int_equal(content(object), 2);
    ok(client, publish(client, NULL, 1, 9));
    assert_string_equal(versions(client).text, " step-4+ step-2-");
    gpubuf_release(object);
    fails(client, GPUBUF_E_STALE, gpubuf_open(client, "w", &options, &object));
    assert_non_null(strstr(gpubuf_errmsg(client), "(\"step-4\")"));
    options = (struct gpubuf_open_options){.size = sizeof(options), .label = "step-2"};
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_open(client, "w", &options, &object));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_versions(client, "wx", note, &told));
    ok(client, gpubuf_delete(client, "w"));
}

TEST(test_one_version)
{
    CLIENT *client = connect_client();
    struct told_versions told;
    ok(client, publish(client, "one", 3, 1));
    ok(client, publish(client, "two", 3, 2));
    ok(client, publish(client, "three", 3, 3));
    ok(client, publish(client, "four", 3, 4));
    told = versions(client);
    ok(client, gpubuf_expire_version(client, "w", told.versions[1], NULL, 1));
    while (versions(client).count > 3)
        continue;
    assert_string_equal(versions(client).text, "four two+ one+");
    fails(client, GPUBUF_E_STALE, gpubuf_restore_version(client, "w", told.versions[1], NULL, 0));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_expire_version(client, "w", 0, "three", 1));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_spill_version(client, "w", 0, "two", NULL));
    ok(client, gpubuf_restore_version(client, "w", 0, "two", 0));
    ok(client, gpubuf_delete_version(client, "w", 0, "two"));
    assert_string_equal(versions(client).text, "four one+");
    fails(client, GPUBUF_E_INVALID, gpubuf_delete_version(client, "w", told.versions[3], "one"));
    fails(client, GPUBUF_E_INVALID, gpubuf_delete_version(client, "w", UINT64_MAX, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_delete_version(client, "w", 0, "\xff"));
    fails(client, GPUBUF_E_INVALID, gpubuf_delete_version(client, "w", 0, ""));
    ok(client, gpubuf_delete_version(client, "w", told.versions[0], NULL));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_versions(client, "w", note, &told));
}

TEST(test_what_seal_says)
{
    CLIENT *client = connect_client();
    struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .label = "made", .keep = 1};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 8};
    struct gpubuf_alias_options alias = {
        .size = sizeof(alias), .replace = true, .label = "alias", .keep = 2};
    struct gpubuf_object *object;
    ok(client, publish(client, "first", 0, 1));
    ok(client, gpubuf_create(client, "w", &layout, &options, &object));
    assert_string_equal(gpubuf_label(object), "made");
    ok(client, gpubuf_set_label(object, "sealed", -1));
    ok(client, gpubuf_seal(object, NULL));
    assert_string_equal(gpubuf_label(object), "sealed");
    assert_string_equal(versions(client).text, "sealed first+");
    fails(client, GPUBUF_E_BUSY, gpubuf_set_label(object, "late", 1));
    gpubuf_release(object);
    ok(client, gpubuf_create(client, "w", &layout, &options, &object));
    ok(client, gpubuf_set_label(object, NULL, 2));
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    assert_string_equal(versions(client).text, "made sealed+ first+");
    ok(client, gpubuf_alias(client, "w", "w", &alias));
    assert_string_equal(versions(client).text, "alias made+ sealed+");
    ok(client, gpubuf_delete(client, "w"));
}

TEST(test_refused)
{
    CLIENT *client = connect_client();
    struct gpubuf_open_options options = {.size = sizeof(options), .label = ""};
    struct gpubuf_object *object;
    char label[257];
    memset(label, 'x', 256);
    label[256] = '\0';
    fails(client, GPUBUF_E_INVALID, publish(client, label, 0, 1));
    fails(client, GPUBUF_E_INVALID, publish(client, "\xff", 0, 1));
    fails(client, GPUBUF_E_INVALID, publish(client, "x", 9, 1));
    label[255] = '\0';
    ok(client, publish(client, label, 8, 1));
    assert_string_equal(versions(client).text, label);
    fails(client, GPUBUF_E_INVALID, gpubuf_open(client, "w", &options, &object));
    options = (struct gpubuf_open_options){.size = sizeof(options), .label = "x", .version = 1};
    fails(client, GPUBUF_E_INVALID, gpubuf_open(client, "w", &options, &object));
    const char *const names[] = {"w"};
    options.version = 0;
    fails(client, GPUBUF_E_INVALID, gpubuf_open_many(client, names, 1, &options, &object, NULL));
    ok(client, gpubuf_delete(client, "w"));
}

/* ---- beside what is kept ---- */

enum { STEPS = 1000 };

struct race {
    atomic_uint_fast64_t published; /* acknowledged */
    atomic_bool done;
};

static void *publish_many(void *arg)
{
    struct race *race = arg;
    struct gpubuf_client *client = connect_client();
    for (uint64_t step = 2; step <= STEPS; step++) {
        char label[16];
        snprintf(label, sizeof(label), "%u", (unsigned)step);
        ok(client, publish(client, label, 2, step));
        atomic_store(&race->published, step);
    }
    atomic_store(&race->done, true);
    gpubuf_disconnect(client);
    return NULL;
}

/* RELIABILITY.md: Older versions 5 */
TEST(test_what_is_kept_is_never_older)
{
    struct gpubuf_connect_options connecting = {.size = sizeof(connecting)};
    CLIENT *client = connect_with(&connecting);
    struct race race = {.published = 1};
    pthread_t thread;
    uint64_t last = 0, switches = 0;
    ok(client, publish(client, "1", 2, 1));
    assert_int_equal(pthread_create(&thread, NULL, publish_many, &race), 0);
    while (last < STEPS) {
        uint64_t published = atomic_load(&race.published);
        struct gpubuf_object *object, *older;
        ok(client, gpubuf_open(client, "w", NULL, &object));
        uint64_t step = content(object);
        assert_true(step >= published && step >= last);
        switches += step > last;
        last = step;
        if (step % 7 ==
            0) { /* older ones, opened by label in between, are not what the name means */
            struct gpubuf_open_options options = {.size = sizeof(options)};
            char label[16];
            snprintf(label, sizeof(label), "%u", (unsigned)step - 1);
            options.label = label;
            int r = gpubuf_open(client, "w", &options, &older);
            assert_true(r == 0 || r == GPUBUF_E_NOT_FOUND);
            if (r == 0) {
                assert_int_equal(content(older), step - 1);
                gpubuf_release(older);
            }
        }
        gpubuf_release(object);
    }
    pthread_join(thread, NULL);
    assert_true(switches > 1);
    assert_int_equal(versions(client).count >= 3, true);
    ok(client, gpubuf_delete(client, "w"));
}

/* A connection that broke: an older version that is held stays so, and an open by label is sent
   once more. */
TEST(test_resumed)
{
    CLIENT *client = connect_client();
    struct gpubuf_open_options options = {.size = sizeof(options), .label = "1"};
    struct gpubuf_object *object, *again;
    ok(client, publish(client, "1", 2, 1));
    ok(client, publish(client, "2", 2, 2));
    ok(client, gpubuf_open(client, "w", &options, &object));
    crash_daemon();
    assert_string_equal(versions(client).text, "2 1+");
    assert_false(gpubuf_is_stale(object));
    assert_int_equal(content(object), 1);
    ok(client, gpubuf_open(client, "w", &options, &again));
    assert_int_equal(gpubuf_object_version(again), gpubuf_object_version(object));
    gpubuf_release(again);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "w"));
}

static int start_supervised(void **state)
{
    static const char *const arguments[] = {"--supervise", "--grace", "600000", NULL};
    return start_daemon_with(arguments);
}

RUN_TESTS(start_supervised, stop_daemon)
