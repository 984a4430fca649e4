/*
 * The journal is written anew a piece in a turn, and what changes meanwhile is in it. A whole
 * server in this process, and a manager that takes descriptors and does nothing with them.
 */
#include "tests/cases.h"

#include "bounds.h"

#include "daemon/survive/replay.h"

#ifdef GB_FAILPOINTS
#define MANY 1000 /* one in a turn */
#else
#define MANY 20000
#endif

static struct gb_notify notify;
static int manager = -1, kept[64];
static unsigned kept_count;
static uint64_t shortest; /* the longest turn of the time with the least, in ns */

/* Takes what is sent to the manager, and keeps all of it: a manager is the last who closes. */
static void take_all(void)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    char text[256];
    struct iovec vector = {text, sizeof(text)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};

    for (; recvmsg(manager, &message, MSG_DONTWAIT) > 0; message.msg_controllen = sizeof(control))
        if (message.msg_controllen > 0) {
            assert_true(kept_count < sizeof(kept) / sizeof(kept[0]));
            memcpy(&kept[kept_count++], CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
        }
}

static void put(const char *name, int number)
{
    char whole[32];

    snprintf(whole, sizeof(whole), "%s/%05d", name, number);
    make_small(&asker, whole);
    take_all();
}

static void of_name(const char *method, const char *more, const char *name, int number)
{
    begin_line(method);
    gb_write_format(&line, "\"name\":\"%s/%05d\"%s", name, number, more);
    end_line();
    free(ask_with(&asker, line.data, line.length, NULL, 0));
    take_all();
}

static void pin(bool on, const char *name, int number)
{
    of_name("set", on ? ",\"pinned\":true" : ",\"pinned\":false", name, number);
}

/* Changes one object until it is begun. */
static void until_begun(void)
{
    for (int i = 0; inside.server.state.next.fd < 0; i++)
        pin(i % 2 == 0, "kept", 0);
}

/* The journal says what there is: each object with its version, and no other. */
static void check(void)
{
    struct gb_registry *registry = &inside.server.registry;
    struct gb_journal journal;
    struct gb_notify none = GB_NOTIFY_NONE;
    struct gb_replay replay;
    struct gb_error error;
    uint64_t objects = 0;
    int fd = dup(inside.server.state.journal.fd);

    assert_int_equal(gb_replay_read(&replay, &journal, fd, &none, inside.server.devices,
                                    inside.server.device_count, &error),
                     0);
    for (size_t i = 0; i < replay.storage_count; i++)
        for (size_t j = 0; j < replay.storages[i].object_count; j++) {
            const struct gb_replayed_object *found = &replay.storages[i].objects[j];
            const struct gb_object *object =
                gb_registry_find(registry, found->name, found->name_length);

            assert_non_null(object);
            assert_int_equal(object->version, found->version);
            assert_int_equal(object->pinned, found->pinned);
            objects++;
        }
    assert_int_equal(objects, inside.server.devices[0]->objects);
    assert_int_equal(replay.disbelieved, 0);
    gb_replay_end(&replay);
    gb_journal_end(&journal);
}

/* RELIABILITY.md: Hostile clients 12 */
TEST(test_pieces)
{
    uint64_t generation = inside.server.state.journal.generation;

    for (int round = 0; round < 3; round++) {
        int turns = 0;

        longest_turn = 0;
        measuring = true;
        until_begun();
        for (; inside.server.state.next.fd >= 0; turns++) {
            /* One that it has, or has not yet. */
            pin(true, "kept", (round * 1000 + turns * 7) % (MANY - 200));
            if (turns < 50) {
                of_name("delete", "", "kept", MANY - 1 - round * 50 - turns);
                put("new", round * 50 + turns);
            }
        }
        assert_true(turns > 50);
        check();
        measuring = false;
        shortest = round == 0 || longest_turn < shortest ? longest_turn : shortest;
    }
    assert_true(inside.server.state.journal.generation >= generation + 3);
    print_message("longest turn: %.1f us\n", (double)shortest / 1e3);
#ifndef GB_FAILPOINTS
    assert_true(shortest <= FACTOR * BOUND_US * UINT64_C(1000));
#endif
}

/* A journal that cannot be written is given up, and spoilt, since the manager still has it.
   Requests are served meanwhile, and another journal is begun that has all of it. */
/* RELIABILITY.md: The daemon ends 24 */
TEST(test_given_up)
{
    struct gb_state *ours = &inside.server.state;
    int former = dup(ours->journal.fd);
    struct rlimit before, limit;
    struct gb_error error;
    uint64_t generation;

    assert_int_equal(gb_journal_peek(former, &generation, &error), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    put("given-up", 1);
    pin(true, "given-up", 1);
    assert_false(gb_state_is_kept(ours));
    assert_int_equal(gb_journal_peek(former, &generation, &error), GPUBUF_E_INVALID);
    close(former);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    put("given-up", 2);
    for (int i = 0; !gb_state_is_kept(ours); i++)
        pin(i % 2 == 0, "given-up", 2);
    check();
}

int main(void)
{
    static const char *const options[] = {"--device", "host:64M", NULL};
    int pair[2], failed;

    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 1;
    manager = pair[1];
    notify = (struct gb_notify){.socket = pair[0]};
    begin_world(options, &notify);
    for (int i = 0; i < MANY; i++)
        put("kept", i);
    failed = cmocka_run_group_tests(listed_tests, NULL, NULL);
    end_world();
    close(pair[0]);
    close(manager);
    while (kept_count > 0)
        close(kept[--kept_count]);
    return failed;
}
