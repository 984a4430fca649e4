/* The closer: one descriptor of a user at a time, users apart, what is pending is charged and
   bounded. Its processes are stopped and let go on by signals, so that it is known what is
   pending. */
#include "tests/cases.h"

#include "daemon/serve/closer.h"
#include "descriptors.h"

struct world {
    uv_loop_t loop;
    struct gb_closer *closer;
    struct gb_users users;
    struct gb_user *a, *b;
    pid_t sweeper, closers[GB_CLOSERS];
    size_t open; /* descriptors, when nothing is pending */
};

static unsigned children_of(pid_t parent, pid_t *children, unsigned most)
{
    char path[64];
    FILE *file;
    unsigned count = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    file = fopen(path, "r");
    assert_non_null(file);
    while (count < most && fscanf(file, "%d", &children[count]) == 1)
        count++;
    fclose(file);
    return count;
}

static char state_of(pid_t pid)
{
    char path[64], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file) {
        assert_true(fscanf(file, "%*d (%*[^)]) %c", &state) >= 0);
        fclose(file);
    }
    return state;
}

static void take_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    nanosleep(&moment, NULL);
}

/* A closer is named when it ends with the sweeper. Stopped before, it would outlive that. */
static bool are_ready(struct world *world)
{
    if (children_of(world->sweeper, world->closers, GB_CLOSERS) < GB_CLOSERS)
        return false;
    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        char path[64], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)world->closers[i]);
        file = fopen(path, "r");
        if (file) {
            (void)!fgets(name, sizeof(name), file);
            fclose(file);
        }
        if (strcmp(name, "gpubufd-closer\n") != 0)
            return false;
    }
    return true;
}

/* The sweeper is the test's child, the closers are the sweeper's. */
static void find_processes(struct world *world)
{
    assert_int_equal(children_of(getpid(), &world->sweeper, 1), 1);
    while (!are_ready(world))
        take_a_moment();
}

static bool are_replaced(struct world *world, const pid_t *before)
{
    if (!are_ready(world))
        return false;
    for (unsigned i = 0; i < GB_CLOSERS; i++)
        for (unsigned j = 0; j < GB_CLOSERS; j++)
            if (world->closers[i] == before[j])
                return false;
    return true;
}

static void wait_for_new_closers(struct world *world)
{
    pid_t before[GB_CLOSERS];

    memcpy(before, world->closers, sizeof(before));
    while (!are_replaced(world, before)) {
        uv_run(&world->loop, UV_RUN_NOWAIT);
        take_a_moment();
    }
}

static void begin(struct world *world)
{
    struct gb_error error;

    memset(world, 0, sizeof(*world));
    assert_int_equal(gb_closer_new(&world->closer, &error), 0);
    if (!world->closer)
        skip(); /* a build for valgrind */
    find_processes(world);
    assert_int_equal(uv_loop_init(&world->loop), 0);
    assert_int_equal(gb_closer_start(world->closer, &world->loop), 0);
    gb_users_init(&world->users);
    world->users.record_bytes = sizeof(struct gb_served);
    world->a = gb_user_get(&world->users, 1);
    world->b = gb_user_get(&world->users, 2);
    world->open = open_fds();
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void end(struct world *world)
{
    gb_closer_stop(world->closer);
    uv_walk(&world->loop, close_handle, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&world->loop), 0);
    gb_closer_end(world->closer);
    gb_user_unref(world->a);
    gb_user_unref(world->b);
    gb_users_end(&world->users);
}

static void signal_closers(const struct world *world, int number)
{
    for (unsigned i = 0; i < GB_CLOSERS; i++) {
        kill(world->closers[i], number);
        while (number == SIGSTOP && state_of(world->closers[i]) != 'T')
            take_a_moment();
    }
}

/* A descriptor that is not closed on the spot. */
static int socket_fd(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    return fd;
}

static void run_until_closed(struct world *world)
{
    while (world->a->charges[GB_HELD_FDS] + world->b->charges[GB_HELD_FDS] > 0)
        uv_run(&world->loop, UV_RUN_ONCE);
}

TEST(test_closes_what_it_is_handed)
{
    struct world world;

    begin(&world);
    for (unsigned i = 0; i < 300; i++)
        gb_close_foreign(world.closer, i % 2 ? world.a : world.b, socket_fd());
    assert_int_equal(world.a->charges[GB_HELD_FDS] + world.b->charges[GB_HELD_FDS], 300);
    run_until_closed(&world);
    assert_int_equal(open_fds(), world.open);
    gb_close_foreign(world.closer, NULL, socket_fd());
    gb_closer_stop(world.closer);
    assert_int_equal(open_fds(), world.open);
    end(&world);
}

TEST(test_memory_is_closed_on_the_spot)
{
    struct world world;
    int fd;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    gb_close_foreign(world.closer, world.a, marked_fd(1 << 30)); /* none of it is there */
    assert_int_equal(world.a->charges[GB_HELD_FDS], 0);
    assert_int_equal(open_fds(), world.open);
    fd = marked_fd(4 << 20);
    assert_int_equal(fallocate(fd, 0, 0, 4 << 20), 0);
    gb_close_foreign(world.closer, world.a, fd); /* freeing that may take its time */
    assert_int_equal(world.a->charges[GB_HELD_FDS], 1);
    signal_closers(&world, SIGCONT);
    run_until_closed(&world);
    assert_int_equal(open_fds(), world.open);
    end(&world);
}

/* With all but one process stopped, as if stuck, a user has one descriptor in hand, and another
   user's go through the process that is left. */
/* RELIABILITY.md: Hostile clients 4 */
TEST(test_a_user_has_one_at_a_time)
{
    struct world world;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    for (unsigned i = 0; i < 40; i++)
        gb_close_foreign(world.closer, world.a, socket_fd());
    assert_int_equal(world.a->charges[GB_HELD_FDS], 40);
    assert_int_equal(gb_served(world.a)->received.count, 39);
    assert_true(gb_served(world.a)->received.in_hand);
    assert_false(gb_closer_is_behind(world.a, 40));
    assert_true(gb_closer_is_behind(world.a, 39));
    assert_false(gb_closer_is_behind(world.b, 1));
    for (unsigned i = 0; i < 5; i++)
        gb_close_foreign(world.closer, world.b, socket_fd());
    assert_true(gb_served(world.b)->received.in_hand);
    assert_int_equal(gb_served(world.b)->received.count, 4);
    signal_closers(&world, SIGCONT);
    run_until_closed(&world);
    assert_int_equal(open_fds(), world.open);
    end(&world);
}

/* More users than processes: those that come later wait, and nobody's is lost. */
TEST(test_more_users_than_processes)
{
    struct gb_user *many[3 * GB_CLOSERS];
    struct world world;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    for (unsigned i = 0; i < 3 * GB_CLOSERS; i++) {
        many[i] = gb_user_get(&world.users, 100 + i);
        gb_close_foreign(world.closer, many[i], socket_fd());
        assert_int_equal(gb_served(many[i])->received.in_hand, i < GB_CLOSERS);
        gb_user_unref(many[i]); /* the closer knows it for as long as it must */
    }
    assert_int_equal(open_fds(), world.open + 3 * GB_CLOSERS);
    signal_closers(&world, SIGCONT);
    while (world.users.table.count > 2)
        uv_run(&world.loop, UV_RUN_ONCE);
    assert_int_equal(open_fds(), world.open);
    end(&world);
}

static int send_fd(int to, int fd, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'x';
    struct iovec vector = {&byte, 1};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control)};

    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
    return sendmsg(to, &header, flags) == 1 ? 0 : -1;
}

/* As for a session: else a byte out of band is no part of what is received. */
static void inline_urgent(int fd)
{
    int on = 1;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)), 0);
}

/* A connection hangs up at once, whatever lies in it. It goes to a process only where descriptors
   do. */
/* RELIABILITY.md: Hostile clients 3 */
TEST(test_connections)
{
    static char bytes[65536];
    struct world world;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    for (unsigned how = 0; how < 4; how++) {
        int ends[2], other = socket_fd();
        bool brings = how >= 2;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        for (unsigned i = 0; how > 0 && i < 10; i++)
            assert_int_equal(send(ends[1], bytes, 4096, 0), 4096);
        if (brings)
            assert_int_equal(send_fd(ends[1], other, how == 3 ? MSG_OOB : 0), 0);
        close(other);
        inline_urgent(ends[0]);
        /* Receiving stops before a byte that was out of band. */
        assert_int_equal(gb_brings_descriptors(ends[0], bytes, sizeof(bytes)), how == 2);
        gb_close_connection(world.closer, world.a, ends[0]);
        assert_int_equal(world.a->charges[GB_HELD_FDS], brings);
        assert_int_equal(recv(ends[1], bytes, 1, MSG_DONTWAIT), 0);
        close(ends[1]);
        signal_closers(&world, SIGCONT);
        run_until_closed(&world);
        signal_closers(&world, SIGSTOP);
    }
    signal_closers(&world, SIGCONT);
    assert_int_equal(open_fds(), world.open);
    end(&world);
}

/* A close that is stuck when the daemon ends holds nobody up, and its users are forgotten. */
TEST(test_stuck_at_the_end)
{
    struct world world;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    for (unsigned i = 0; i < 5; i++) {
        gb_close_foreign(world.closer, world.a, socket_fd());
        gb_close_foreign(world.closer, NULL, socket_fd());
    }
    gb_closer_stop(world.closer);
    assert_int_equal(world.a->charges[GB_HELD_FDS], 0);
    end(&world);
    /* The sweeper waits for our end. */
    kill(world.sweeper, SIGKILL);
    assert_int_equal(waitpid(world.sweeper, NULL, 0), world.sweeper);
    assert_true(open_fds() <
                world.open + 10); /* they are closed when we have ended, but nothing else stays */
}

/* Descriptors in the hands of closers that are killed are closed by those that are started then. */
/* RELIABILITY.md: Hostile clients 5 */
TEST(test_killed_closers_are_replaced)
{
    struct world world;

    begin(&world);
    for (unsigned round = 0; round < 3; round++) {
        if (round != 1) /* else they die idle, or while they close */
            signal_closers(&world, SIGSTOP);
        for (unsigned i = 0; i < 60; i++)
            gb_close_foreign(world.closer, i % 2 ? world.a : world.b, socket_fd());
        signal_closers(&world, SIGKILL);
        run_until_closed(&world);
        assert_int_equal(open_fds(), world.open);
        wait_for_new_closers(&world);
    }
    end(&world);
}

/* RELIABILITY.md: Hostile clients 5 */
TEST(test_a_killed_sweeper_is_replaced)
{
    struct world world;
    pid_t before;

    begin(&world);
    signal_closers(&world, SIGSTOP);
    for (unsigned i = 0; i < 60; i++)
        gb_close_foreign(world.closer, i % 2 ? world.a : world.b, socket_fd());
    before = world.sweeper;
    kill(world.sweeper, SIGKILL);
    run_until_closed(&world);
    assert_int_equal(open_fds(), world.open);
    find_processes(&world);
    assert_int_not_equal(world.sweeper, before);
    end(&world);
}

/* A number that was given out again before it was known that its closer had died stays open. */
/* RELIABILITY.md: Hostile clients 5 */
TEST(test_a_reused_number_stays_open)
{
    struct world world;
    int fd = socket_fd();

    begin(&world);
    signal_closers(&world, SIGSTOP);
    gb_close_foreign(world.closer, world.a, fd);
    close(fd); /* as the closer would */
    assert_int_equal(socket_fd(), fd);
    signal_closers(&world, SIGKILL);
    run_until_closed(&world);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    close(fd);
    end(&world);
}

RUN_TESTS(NULL, NULL)
