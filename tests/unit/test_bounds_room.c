/*
 * How long requests hold the loop on a device that has no room: bounds.h says how that is measured.
 */
#include "tests/cases.h"

#include "bounds.h"

static struct peer holder;

/* As many as a device of 4 MiB has room for, each a granule. */
#define SMALL (SANITIZED ? 1000 : 16000)

static void prepare_full(void)
{
    char name[32];

    for (int i = 0; i < SMALL; i++) {
        snprintf(name, sizeof(name), "small/%05d", i);
        make_small(&asker, name);
    }
    /* Nobody maps what is to go. */
    begin_line("unmap");
    gb_write_text(&line, "\"segments\":[1");
    for (int i = 2; i <= GB_LIMIT(ids); i++)
        gb_write_format(&line, ",%d", i);
    gb_write_char(&line, ']');
    end_line();
    prepare(&asker, "\"id\":1");
}

ASK(ask_large, "create",
    "\"name\":\"large\",\"replace\":true,\"layout\":{\"kind\":\"bytes\","
    "\"bytes\":2000000}")
ASK(ask_small, "create",
    "\"name\":\"small\",\"replace\":true,\"layout\":{\"kind\":\"bytes\","
    "\"bytes\":64}")

static void end_large(void)
{
    struct gb_session *session = peer_session(&inside, &asker);

    gb_holder_end(&inside.server.registry, &session->holder);
}

/* Room for a large object on a device that is full of small ones. */
/* RELIABILITY.md: Hostile clients 12 */
TEST(test_eviction)
{
    static const char *const options[] = {"--device", "host:4M", "--evict", "drop", NULL};
    const struct ask make_room = {"create, evicting thousands", prepare_full, ask_large, end_large,
                                  "\"lease\":"};

    begin_world(options, NULL);
    play_all(&make_room, 1, FACTOR * BOUND_US);
    assert_true(SANITIZED || inside.server.devices[0]->so_far.evictions >= ROUNDS * 4000);
    end_world();
}

/* A small object is asked for while as many requests as there may be wait for the room of large
   ones. */
/* RELIABILITY.md: Hostile clients 12 */
TEST(test_many_wait_for_room)
{
    static const char *const options[] = {"--device", "host:64M", NULL};
    const struct ask behind = {"create, behind many", NULL, ask_small, end_large, "\"lease\":"};

    begin_world(options, NULL);
    begin_line("create");
    gb_write_text(&line, "\"name\":\"held\",\"layout\":{\"kind\":\"bytes\",\"bytes\":50000000}");
    end_line();
    assert_true(peer_connect(&inside, &holder));
    prepare(&holder, "\"lease\":");
    begin_line("create");
    gb_write_text(&line, "\"name\":\"waits\",\"wait_ms\":600000,"
                         "\"layout\":{\"kind\":\"bytes\",\"bytes\":40000000}");
    end_line();
    for (size_t i = 0; i < WAITERS; i++) {
        assert_true(peer_connect(&inside, &waiters[i]));
        send_waits(&waiters[i], SANITIZED ? 20 : GB_LIMIT(session_waits));
    }
    play_all(&behind, 1, FACTOR * BOUND_US);
    end_awaited();
    peer_close(&holder);
    end_world();
}

RUN_TESTS(NULL, NULL)
