/* The library believes the memory that a daemon shows it: while that lives, and by its number. */
#include "tests/cases.h"

#include "client/lib/memory/cache.h"
#include "client/lib/objects/cached.c"

/* A cached lease is good while its slot has its number and the daemon lives: a dead one clears no
   slot any more. */
TEST(test_a_dead_daemon_clears_no_slot)
{
    _Atomic uint64_t slots[2] = {7, 9};
    _Atomic uint32_t pulse = 4711;
    struct gb_cached cached = {.slots = slots, .pulse = &pulse, .alive = 4711};
    struct gb_client_lease lease = {.id = 9, .slot = 2};

    assert_true(is_current(&cached, &lease));
    pulse |= FUTEX_OWNER_DIED;
    assert_false(is_current(&cached, &lease));
    pulse = 4711;
    slots[1] = 0;
    assert_false(is_current(&cached, &lease));
    slots[1] = 9;
    cached.slots = NULL; /* the connection has ended */
    assert_false(is_current(&cached, &lease));
}

/* A number that a segment has in this process is not believed of other memory, whoever says so. */
TEST(test_a_number_means_one_memory)
{
    struct gb_imports imports[2] = {{.idle_bytes_max = 1 << 20}, {.idle_bytes_max = 1 << 20}};
    struct gb_segment_info info = {.id = 3, .device = "host", .bytes = 4096};
    struct gb_error error;
    int fds[2];

    info.handle.kind = GB_HANDLE_MEMFD;
    for (int i = 0; i < 2; i++) {
        fds[i] = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(fds[i] >= 0 && ftruncate(fds[i], 4096) == 0);
        assert_int_equal(fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK), 0);
        assert_int_equal(gb_imports_reserve(&imports[i], 2), 0);
    }
    assert_int_equal(gb_imports_map_segment(&imports[0], "one", &info, fds[0], &error), 0);
    assert_int_equal(gb_imports_map_segment(&imports[1], "one", &info, fds[1], &error),
                     GPUBUF_E_PROTOCOL);
    assert_int_equal(gb_imports_map_segment(&imports[1], "another", &info, fds[1], &error), 0);
    for (int i = 0; i < 2; i++) {
        gb_imports_abandon(&imports[i]);
        gb_imports_end(&imports[i]);
        close(fds[i]);
    }
}

RUN_TESTS(NULL, NULL)
