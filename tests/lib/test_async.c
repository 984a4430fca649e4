/*
 * Requests that do not block: event loops, callbacks, canceling, many objects at once, watches,
 * and how all of them end when the connection or the daemon does.
 */
#include "harness.h"

#define MANY 1000 /* names */

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- asynchronously ---- */

struct outcome {
    bool done;
    int status;
    unsigned calls;
    struct gpubuf_object *object;
    char result[256];
};

static void object_done(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                        void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->status = status;
    outcome->object = object;
    outcome->calls++;
}

static void call_done(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->status = status;
    outcome->calls++;
    if (result)
        snprintf(outcome->result, sizeof(outcome->result), "%.*s", (int)length, result);
}

COUNTED(test_event_loop)
{
    CLIENT *client = connect_client();
    struct outcome made = {0}, sealed = {0}, opened = {0}, missing = {0}, called = {0};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_memory memory;
    ok(client, gpubuf_create_async(client, "async", &layout, NULL, object_done, &made, NULL));
    dispatch_until(client, &made.done);
    assert_int_equal(made.status, 0);
    ok(client, gpubuf_memory(made.object, GPUBUF_DATA, &memory));
    memcpy(memory.pointer, "0123456789", 10);
    ok(client, gpubuf_seal_async(made.object, NULL, object_done, &sealed, NULL));
    fails(client, GPUBUF_E_BUSY, gpubuf_seal_async(made.object, NULL, object_done, &sealed, NULL));
    dispatch_until(client, &sealed.done);
    assert_int_equal(sealed.status, 0);
    assert_ptr_equal(sealed.object, made.object);
    gpubuf_release(sealed.object);
    gpubuf_release(made.object);
    ok(client, gpubuf_open_async(client, "async", NULL, object_done, &opened, NULL));
    ok(client, gpubuf_open_async(client, "absent", NULL, object_done, &missing, NULL));
    ok(client,
       gpubuf_call_async(client, "delete", "{\"name\":\"async\"}", call_done, &called, NULL));
    dispatch_until(client, &called.done);
    assert_int_equal(opened.status, 0);
    assert_int_equal(missing.status, GPUBUF_E_NOT_FOUND);
    assert_null(missing.object);
    assert_string_equal(called.result, "{}");
    gpubuf_release(opened.object);
    assert_int_equal(gpubuf_events(client), POLLIN);
    assert_int_equal(gpubuf_dispatch(client), 0);
    ok(client, gpubuf_call_async(client, "stats", NULL, NULL, NULL, NULL));
    assert_int_equal(stat_value(client, "leases"), 0);
}

COUNTED(test_canceling)
{
    CLIENT *client = connect_client(), *other = connect_client();
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct outcome open = {0}, create = {0}, call = {0};
    uint64_t request;
    ok(client, gpubuf_open_async(client, "late", &wait, object_done, &open, &request));
    assert_false(open.done);
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(open.status, GPUBUF_E_CANCELED);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_cancel(client, request));
    /* The daemon grants it all the same: it is given back. */
    ok(other, gpubuf_put_bytes(other, "late", "x", 1, NULL));
    ok(client, gpubuf_create_async(client, "never", &layout, NULL, object_done, &create, &request));
    ok(client, gpubuf_cancel(client, request));
    ok(client, gpubuf_call_async(client, "stats", NULL, call_done, &call, &request));
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(call.status, GPUBUF_E_CANCELED);
    assert_int_equal(create.calls + open.calls + call.calls, 3);
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL)); /* the answers have come */
    assert_int_equal(stat_value(client, "leases"), 0);
    assert_int_equal(create.calls + open.calls + call.calls, 3);
    ok(client, gpubuf_delete(client, "late"));

    /* Blocking calls that give up: here the daemon says so. */
    struct gpubuf_object *object = NULL;
    wait.wait_ms = 20;
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_open(client, "late", &wait, &object));
    wait.wait_ms = -1;
    fails(client, GPUBUF_E_INVALID, gpubuf_open(client, "late", &wait, &object));
    assert_null(object);
}

/* A callback may call the library, but must not wait in it. */
struct reentry {
    bool done;
    int blocking;
    struct outcome next;
    uint64_t other;
    struct outcome canceled;
};

static void reenter(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg)
{
    struct reentry *reentry = arg;
    struct gpubuf_object *none, *slice;
    struct gpubuf_info info;
    assert_int_equal(status, 0);
    reentry->blocking = gpubuf_open(client, "reentry", NULL, &none);
    assert_int_equal(gpubuf_stat(client, "reentry", &info), GPUBUF_E_BUSY);
    assert_int_equal(gpubuf_seal(object, NULL), GPUBUF_E_BUSY);
    assert_true(gpubuf_dispatch(client) >= 0);
    ok(client, gpubuf_slice(object, 0, 1, &slice));
    gpubuf_release(slice);
    ok(client, gpubuf_open_async(client, "reentry", NULL, object_done, &reentry->next, NULL));
    ok(client, gpubuf_cancel(client, reentry->other));
    gpubuf_release(object);
    reentry->done = true;
}

COUNTED(test_callbacks)
{
    CLIENT *client = connect_client();
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct reentry reentry = {.blocking = 0};
    put_counting(client, "reentry", 10, 0);
    ok(client,
       gpubuf_open_async(client, "not yet", &wait, object_done, &reentry.canceled, &reentry.other));
    ok(client, gpubuf_open_async(client, "reentry", NULL, reenter, &reentry, NULL));
    dispatch_until(client, &reentry.done);
    assert_int_equal(reentry.blocking, GPUBUF_E_BUSY);
    assert_int_equal(reentry.canceled.status, GPUBUF_E_CANCELED);
    dispatch_until(client, &reentry.next.done);
    assert_int_equal(reentry.next.status, 0);
    /* The callback's own lease went with the end of the callbacks. */
    assert_int_equal(leases_of(client, "reentry"), 1);
    gpubuf_release(reentry.next.object);

    /* Inside a blocking call of the same thread. */
    reentry = (struct reentry){.blocking = 0};
    ok(client,
       gpubuf_open_async(client, "not yet", &wait, object_done, &reentry.canceled, &reentry.other));
    ok(client, gpubuf_open_async(client, "reentry", NULL, reenter, &reentry, NULL));
    struct gpubuf_info info;
    ok(client, gpubuf_stat(client, "reentry", &info));
    assert_true(reentry.done);
    dispatch_until(client, &reentry.next.done);
    gpubuf_release(reentry.next.object);
}

/* ---- many, without waiting ---- */

struct opened {
    bool done;
    int status;
    int errors[3];
    struct gpubuf_object *objects[3];
};

static void note_objects(struct gpubuf_client *client, int status,
                         struct gpubuf_object *const *objects, const int *errors, size_t count,
                         void *arg)
{
    struct opened *opened = arg;
    assert_false(opened->done);
    opened->done = true;
    opened->status = status;
    assert_int_equal(count, 3);
    if (status < 0) {
        assert_null(objects);
        assert_null(errors);
        return;
    }
    memcpy((void *)opened->objects, (const void *)objects, sizeof(opened->objects));
    memcpy(opened->errors, errors, sizeof(opened->errors));
}

COUNTED(test_open_many_without_waiting)
{
    struct gpubuf_client *client = connect_client();
    put_counting(client, "async/a", 3, 1);
    put_counting(client, "async/b", 3, 2);
    struct opened opened = {.done = false};
    char first[] = "async/a"; /* the names are copied */
    const char *names[] = {first, "", "async/b"};
    ok(client, gpubuf_open_many_async(client, names, 3, NULL, note_objects, &opened, NULL));
    memset(first, 'x', sizeof(first) - 1);
    dispatch_until(client, &opened.done);
    assert_int_equal(opened.status, 2);
    assert_int_equal(opened.errors[1], GPUBUF_E_INVALID);
    assert_string_equal(gpubuf_name(opened.objects[0]), "async/a");
    assert_string_equal(gpubuf_name(opened.objects[2]), "async/b");
    gpubuf_release_many(opened.objects, 3);

    /* Canceled while the daemon waits, and before an answer that grants. */
    static const struct gpubuf_open_options wait = {sizeof(wait), .wait_ms = 60000};
    static const char *const missing[] = {"async/a", "async/never", "async/b"};
    static const char *const there[] = {"async/a", "async/a", "async/b"};
    for (int i = 0; i < 2; i++) {
        struct opened canceled = {.done = false};
        uint64_t request;
        ok(client, gpubuf_open_many_async(client, i ? there : missing, 3, i ? NULL : &wait,
                                          note_objects, &canceled, &request));
        ok(client, gpubuf_cancel(client, request));
        assert_int_equal(canceled.status, GPUBUF_E_CANCELED);
    }
    ok(client, gpubuf_delete(client, "async/b"));
    assert_int_equal(leases_of(client, "async/a"), 0);

    static const char *const none[] = {"", NULL, "a//b"};
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, none, 3, NULL, note_objects, &opened, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, none, 0, NULL, note_objects, &opened, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, there, 3, NULL, NULL, NULL, NULL));
    struct opened lost = {.done = false};
    ok(client, gpubuf_open_many_async(client, there, 3, NULL, note_objects, &lost, NULL));
    ok(client, gpubuf_delete(client, "async/a"));
    gpubuf_disconnect(client);
    assert_true(lost.done);
    if (lost.status >= 0)
        gpubuf_release_many(lost.objects, 3);
}

/* ---- more names than one request may have ---- */

struct crowd {
    bool done;
    int status;
    struct gpubuf_object *objects[MANY];
    int errors[MANY];
};

static void note_crowd(struct gpubuf_client *client, int status,
                       struct gpubuf_object *const *objects, const int *errors, size_t count,
                       void *arg)
{
    struct crowd *crowd = arg;
    assert_false(crowd->done);
    crowd->done = true;
    crowd->status = status;
    if (status < 0)
        return;
    memcpy((void *)crowd->objects, (const void *)objects, count * sizeof(struct gpubuf_object *));
    memcpy(crowd->errors, errors, count * sizeof(*errors));
}

/* Returns for how many milliseconds they were waited for. */
static int64_t open_in_parts(struct gpubuf_client *client, const char *const *names, bool blocking,
                             struct crowd *crowd)
{
    static const struct gpubuf_open_options wait = {sizeof(wait), .wait_ms = 3000};
    int64_t begun = milliseconds();
    crowd->done = false;
    if (blocking) {
        crowd->status = gpubuf_open_many(client, names, MANY, &wait, crowd->objects, crowd->errors);
    } else {
        ok(client, gpubuf_open_many_async(client, names, MANY, &wait, note_crowd, crowd, NULL));
        dispatch_until(client, &crowd->done);
    }
    return milliseconds() - begun;
}

/* They go in parts, and the wait is that of all together: two of them wait, one after the other for
   six seconds. A machine that stands still for that long has several tries. */
COUNTED(test_open_many_in_parts)
{
    static struct crowd crowd;
    const char *names[MANY];
    CLIENT *client = connect_client();
    put_counting(client, "async/a", 3, 1);
    for (int i = 0; i < MANY; i++)
        names[i] = i == 10 || i == 900 ? "async/never" : i == 300 ? "bad//name" : "async/a";
    for (int blocking = 0; blocking < 2; blocking++) {
        int64_t took = INT64_MAX;
        for (int tries = 0; tries < 5 && took >= 5900; tries++) {
            gpubuf_release_many(crowd.objects, MANY);
            took = open_in_parts(client, names, blocking, &crowd);
            assert_int_equal(crowd.status, MANY - 3);
            assert_true(took >= 2990);
        }
        assert_true(took < 5900);
        for (int i = 0; i < MANY; i++) {
            int error = i == 10 || i == 900 ? GPUBUF_E_TIMEOUT : i == 300 ? GPUBUF_E_INVALID : 0;
            assert_int_equal(crowd.errors[i], error);
            assert_true(!crowd.objects[i] == (error != 0));
        }
    }
    gpubuf_release_many(crowd.objects, MANY);
    ok(client, gpubuf_delete(client, "async/a"));
    assert_int_equal(stat_value(client, "leases"), 0);
}

static bool has_no_leases(void *arg)
{
    return stat_value(arg, "leases") == 0;
}

/* A part that is refused is the end of all of them: what others have opened goes back. */
COUNTED(test_a_part_is_refused)
{
    enum { WAITS = 255 }; /* of a session, 256 */
    static const struct gpubuf_open_options wait = {sizeof(wait), .wait_ms = 60000};
    static struct outcome waiting[WAITS];
    static struct crowd crowd;
    const char *names[MANY];
    CLIENT *client = connect_client(), *other = connect_client();
    put_counting(client, "async/a", 3, 1);
    for (int i = 0; i < WAITS; i++)
        ok(client, gpubuf_open_async(client, "async/never", &wait, object_done, &waiting[i], NULL));
    for (int i = 0; i < MANY; i++)
        names[i] = i < 64 ? "async/a" : "async/never";
    crowd.done = false;
    ok(client, gpubuf_open_many_async(client, names, MANY, &wait, note_crowd, &crowd, NULL));
    dispatch_until(client, &crowd.done);
    assert_int_equal(crowd.status, GPUBUF_E_LIMIT);
    wait_until(has_no_leases, client);

    /* Those that still waited give back what comes. */
    put_counting(other, "async/never", 3, 1);
    assert_int_equal(leases_of(client, "async/a"), 0);
    for (int i = 0; i < WAITS; i++) {
        dispatch_until(client, &waiting[i].done);
        gpubuf_release(waiting[i].object);
    }
    wait_until(has_no_leases, client); /* a part's answer may come after all of them */
    ok(other, gpubuf_delete(other, "async/a"));
    ok(other, gpubuf_delete(other, "async/never"));
}

/* Canceled at whatever moment. */
COUNTED(test_parts_end)
{
    static struct crowd crowd;
    const char *names[MANY];
    CLIENT *client = connect_client();
    put_counting(client, "async/a", 3, 1);
    for (int i = 0; i < MANY; i++)
        names[i] = "async/a";
    for (int rounds = 0; rounds < 20; rounds++) {
        uint64_t request;
        crowd.done = false;
        ok(client, gpubuf_open_many_async(client, names, MANY, NULL, note_crowd, &crowd, &request));
        for (int i = 0; i < rounds; i++)
            (void)gpubuf_dispatch(client);
        if (!crowd.done)
            ok(client, gpubuf_cancel(client, request));
        assert_true(crowd.done);
        if (crowd.status >= 0)
            gpubuf_release_many(crowd.objects, MANY);
        wait_until(has_no_leases, client);
    }
    ok(client, gpubuf_delete(client, "async/a"));
}

/* ---- watching ---- */

struct events {
    struct told told;
    bool ended;
    uint64_t watch;
};

static void note_event(struct gpubuf_client *client, const char *kind,
                       const struct gpubuf_info *info, void *arg)
{
    struct events *events = arg;
    note_told(client, kind, info, &events->told);
    if (info && strcmp(info->name, "watched/last") == 0) {
        events->ended = true;
        ok(client, gpubuf_unwatch(client, events->watch));
    }
}

struct texts {
    char text[1024];
    bool last;
};

static void note_text(struct gpubuf_client *client, const char *event, size_t length, void *arg)
{
    struct texts *texts = arg;
    assert_int_equal(strlen(event), length);
    strncat(texts->text, strstr(event, "\"kind\""), 41);
    strcat(texts->text, strstr(event, "\"placements\":[[") ? " placed\n" : " bare\n");
    texts->last = strstr(event, "json/b") != NULL;
}

COUNTED(test_watching_as_json)
{
    CLIENT *client = connect_client(), *other = connect_client();
    struct texts texts = {.last = false};
    uint64_t watch;
    put_counting(other, "json/old", 1, 0);
    ok(client,
       gpubuf_watch_json(client, "{\"prefix\":\"json/\",\"existing\":false,\"placements\":true}",
                         note_text, &texts, &watch));
    put_counting(other, "json/a", 1, 0);
    put_counting(other, "json/b", 1, 0);
    dispatch_until(client, &texts.last);
    assert_string_equal(texts.text, "\"kind\":\"sealed\",\"object\":{\"name\":\"json/a\" placed\n"
                                    "\"kind\":\"sealed\",\"object\":{\"name\":\"json/b\" placed\n");
    ok(client, gpubuf_unwatch(client, watch));
    fails(client, GPUBUF_E_INVALID, gpubuf_watch_json(client, "[]", note_text, &texts, &watch));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_watch_json(client, "{\"x\":1}", note_text, &texts, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_watch_json(client, NULL, NULL, NULL, NULL));
    ok(other, gpubuf_delete(other, "json/old"));
    ok(other, gpubuf_delete(other, "json/a"));
    ok(other, gpubuf_delete(other, "json/b"));
}

COUNTED(test_watching)
{
    CLIENT *client = connect_client(), *other = connect_client();
    struct events events = {.watch = 0};
    put_counting(other, "watched/a", 1, 0);
    put_counting(other, "unwatched", 1, 0);
    ok(client, gpubuf_watch(client, "watched/", note_event, &events, &events.watch));
    dispatch_until(client, &events.told.synced);
    put_counting(other, "watched/b", 1, 0);
    put_counting(other, "unwatched", 1, 0);
    ok(other, gpubuf_delete(other, "watched/a"));
    put_counting(other, "watched/last", 1, 0);
    put_counting(other, "watched/later", 1, 0);
    dispatch_until(client, &events.ended);
    struct gpubuf_info info;
    ok(client, gpubuf_stat(client, "watched/later", &info));
    assert_string_equal(events.told.text,
                        "sealed:watched/a synced:- sealed:watched/b deleted:watched/a "
                        "sealed:watched/last ");
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_unwatch(client, events.watch));
    fails(client, GPUBUF_E_INVALID, gpubuf_watch(client, NULL, NULL, NULL, NULL));
    static const char *const all[] = {"watched/b", "watched/last", "watched/later", "unwatched"};
    for (size_t i = 0; i < COUNT(all); i++)
        ok(other, gpubuf_delete(other, all[i]));
}

struct answer {
    struct events events; /* first, so that both callbacks find what they want */
    bool done;
    int status;
    uint64_t watch;
};

static void note_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg)
{
    struct answer *answer = arg;
    assert_string_equal(answer->events.told.text, ""); /* told before any event */
    assert_false(answer->done);
    answer->done = true;
    answer->status = status;
    answer->watch = answer->events.watch = watch;
}

/* As the daemon counts them. */
static uint64_t watch_count(struct gpubuf_client *client)
{
    struct events events = {.watch = 0};
    uint64_t count = 0;
    uint64_t ids[64];
    while (count < 64 && gpubuf_watch(client, "none/", note_event, &events, &ids[count]) == 0)
        count++;
    for (uint64_t i = 0; i < count; i++)
        ok(client, gpubuf_unwatch(client, ids[i]));
    return 64 - count;
}

COUNTED(test_watching_without_waiting)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct answer answer = {.done = false}, canceled = {.done = false}, lost = {.done = false};
    put_counting(other, "watched/a", 1, 0);
    ok(client, gpubuf_watch_async(client, "watched/", note_event, note_watch, &answer, NULL));
    dispatch_until(client, &answer.events.told.synced);
    assert_true(answer.done);
    assert_int_equal(answer.status, 0);
    put_counting(other, "watched/last", 1, 0);
    dispatch_until(client, &answer.events.ended);
    assert_string_equal(answer.events.told.text, "sealed:watched/a synced:- sealed:watched/last ");
    assert_int_equal(watch_count(client), 0);

    /* Canceled before the answer: the daemon has no watch all the same. */
    uint64_t request;
    ok(client, gpubuf_watch_async(client, NULL, note_event, note_watch, &canceled, &request));
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(canceled.status, GPUBUF_E_CANCELED);
    assert_int_equal(watch_count(client), 0);
    assert_string_equal(canceled.events.told.text, "");

    fails(client, GPUBUF_E_INVALID,
          gpubuf_watch_async(client, NULL, NULL, note_watch, &answer, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_watch_async(client, NULL, note_event, NULL, &answer, NULL));
    ok(client, gpubuf_watch_async(client, NULL, note_event, note_watch, &lost, NULL));
    gpubuf_disconnect(client);
    assert_true(lost.done);
    assert_int_equal(lost.status, GPUBUF_E_CLOSED);
    ok(other, gpubuf_delete(other, "watched/a"));
    ok(other, gpubuf_delete(other, "watched/last"));
    gpubuf_disconnect(other);
}

/* ---- the end ---- */

COUNTED(test_objects_outlive_the_connection)
{
    size_t mappings = count_mappings(), fds = count_fds();
    struct gpubuf_client *client = connect_client(), *observer = connect_client();
    struct gpubuf_object *object, *slice;
    struct gpubuf_memory memory;
    struct outcome open = {0};
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    put_counting(client, "outlived", 10, 0);
    ok(client, gpubuf_open(client, "outlived", NULL, &object));
    ok(client, gpubuf_slice(object, 3, 3, &slice));
    ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    ok(client, gpubuf_open_async(client, "not there", &wait, object_done, &open, NULL));
    gpubuf_disconnect(client);
    assert_int_equal(open.status, GPUBUF_E_CLOSED);
    assert_int_equal(*(unsigned char *)memory.pointer, 3);
    assert_int_equal(gpubuf_length(slice), 3);
    assert_int_equal(gpubuf_memory(slice, GPUBUF_DATA, &memory), GPUBUF_E_CLOSED);
    assert_int_equal(leases_of(observer, "outlived"), 0);
    gpubuf_release(object);
    gpubuf_release(slice);
    ok(observer, gpubuf_delete(observer, "outlived"));
    gpubuf_disconnect(observer);
    assert_int_equal(count_mappings(), mappings);
    assert_int_equal(count_fds(), fds);
}

/* Last, since it kills the daemon. */
COUNTED(test_the_daemon_dies)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .resume_ms = GPUBUF_NO_RESUME};
    struct gpubuf_client *client = connect_with(&options);
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_object *object, *unsealed, *none;
    struct gpubuf_memory memory;
    struct outcome open = {0}, call = {0};
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    put_counting(client, "survivor", 10, 5);
    ok(client, gpubuf_open(client, "survivor", NULL, &object));
    ok(client, gpubuf_create(client, "unsealed", &layout, NULL, &unsealed));
    ok(client, gpubuf_open_async(client, "not there", &wait, object_done, &open, NULL));
    kill_daemon();
    ok(client, gpubuf_call_async(client, "stats", NULL, call_done, &call, NULL));
    assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_CLOSED);
    assert_int_equal(open.status, GPUBUF_E_CLOSED);
    assert_int_equal(call.status, GPUBUF_E_CLOSED);
    assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_CLOSED);
    fails(client, GPUBUF_E_CLOSED, gpubuf_open(client, "survivor", NULL, &none));
    fails(client, GPUBUF_E_CLOSED, gpubuf_seal(unsealed, NULL));
    fails(client, GPUBUF_E_CLOSED, gpubuf_put_bytes(client, "x", "y", 1, NULL));
    fails(client, GPUBUF_E_CLOSED, gpubuf_open_async(client, "a", NULL, object_done, &open, NULL));
    assert_true(strlen(gpubuf_errmsg(client)) > 10);
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    assert_int_equal(*(unsigned char *)memory.pointer, 5);
    gpubuf_release(object);
    gpubuf_release(unsealed);
    gpubuf_disconnect(client);
    assert_int_equal(open.calls, 1);
}

RUN_TESTS(start_daemon, stop_daemon)
