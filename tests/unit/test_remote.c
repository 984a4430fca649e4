/* remote: machines that nobody asks any more are freed, and those of use are not. */
#include "tests/cases.h"

#include "client/peer/fetch/remote.c"
#include "loopback.h"

/* No machine here gets as far as TLS. */
struct world {
    uv_loop_t loop;
    struct gb_peer_tls tls;
    struct gb_peer_parts parts;
    struct gb_peer_remotes *remotes;
    int refusing, mute; /* bound sockets: nobody listens; what connects gets no answer */
};

struct asked {
    bool over;
    int status;
};

static int set_up(void **state)
{
    struct world *world = test_calloc(1, sizeof(*world));

    world->refusing = loopback_bound();
    world->mute = loopback_bound();
    world->tls.context = SSL_CTX_new(TLS_method());
    assert_non_null(world->tls.context);
    assert_int_equal(listen(world->mute, 8), 0);
    assert_int_equal(uv_loop_init(&world->loop), 0);
    world->parts = (struct gb_peer_parts){.loop = &world->loop, .tls = &world->tls};
    world->remotes = gb_peer_remotes_new(&world->parts, 3600000);
    assert_non_null(world->remotes);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    gb_peer_remotes_close(world->remotes);
    assert_int_equal(uv_run(&world->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&world->loop), 0);
    SSL_CTX_free(world->tls.context);
    close(world->refusing);
    close(world->mute);
    test_free(world);
    return 0;
}

static void on_answered(void *user, int status, const char *result, size_t length,
                        const struct gb_error *error)
{
    struct asked *asked = user;

    assert_false(asked->over);
    assert_int_equal(error->code, status);
    *asked = (struct asked){true, status};
}

static struct gb_peer_remote *get(struct world *world, const char *node, int fd)
{
    struct gb_peer_remote *remote =
        gb_peer_remotes_get(world->remotes, node, "127.0.0.1", loopback_port(fd));

    assert_non_null(remote);
    return remote;
}

static void ask(struct gb_peer_remote *remote, struct asked *asked)
{
    *asked = (struct asked){0};
    assert_true(gb_peer_remote_ask(remote, "{}", 2, on_answered, asked));
    assert_false(asked->over);
}

static void wait_until_left(struct world *world, unsigned count)
{
    while (world->remotes->count > count)
        (void)uv_run(&world->loop, UV_RUN_ONCE);
    assert_int_equal(world->remotes->count, count);
}

TEST_WITH(test_a_machine_that_is_not_reached_is_freed, set_up, tear_down)
{
    struct world *world = *state;
    struct asked asked;

    for (int i = 0; i < 2; i++) {
        ask(get(world, "gone", world->refusing), &asked);
        wait_until_left(world, 0);
        assert_true(asked.over);
        assert_int_equal(asked.status, GPUBUF_E_CLOSED);
    }
}

TEST_WITH(test_that_it_is_not_reached_is_remembered_for_a_moment, set_up, tear_down)
{
    struct world *world = *state;
    struct gb_peer_remote *remote = get(world, "gone", world->refusing);
    struct asked asked, again;

    ask(remote, &asked);
    while (!asked.over)
        (void)uv_run(&world->loop, UV_RUN_ONCE);
    assert_ptr_equal(get(world, "gone", world->refusing), remote);
    ask(remote, &again);
    assert_null(remote->link); /* nobody connects */
    while (!again.over)
        (void)uv_run(&world->loop, UV_RUN_ONCE);
    assert_int_equal(again.status, GPUBUF_E_CLOSED);
}

TEST_WITH(test_a_machine_that_is_held_stays, set_up, tear_down)
{
    struct world *world = *state;
    struct gb_peer_remote *held = get(world, "held", world->refusing);
    struct asked asked;

    gb_peer_remote_hold(held);
    gb_peer_remote_hold(held);
    ask(held, &asked);
    while (!asked.over || uv_now(&world->loop) < held->again + held->again_ms)
        (void)uv_run(&world->loop, UV_RUN_ONCE);
    for (int holds = 2; holds > 0; holds--) {
        assert_int_equal(held->holds, holds);
        (void)get(world, "other", world->refusing);
        wait_until_left(world, 1); /* the other one went */
        gb_peer_remote_drop(held);
    }
    wait_until_left(world, 0);
}

TEST_WITH(test_a_request_under_way_keeps_its_machine, set_up, tear_down)
{
    struct world *world = *state;
    struct gb_peer_remote *remote = get(world, "mute", world->mute);
    struct asked mute, gone;

    ask(remote, &mute);
    ask(get(world, "gone", world->refusing), &gone);
    wait_until_left(world, 1);
    assert_true(gone.over);
    assert_false(mute.over);
    gb_peer_link_close(remote->link);
    remote->link = NULL;
    lose(remote, false, &(struct gb_error){.code = GPUBUF_E_CLOSED});
    assert_true(mute.over);
    wait_until_left(world, 0);
}

/* More than there may be at a time come and go. */
TEST_WITH(test_machines_come_and_go, set_up, tear_down)
{
    struct world *world = *state;
    char node[32];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < REMOTES_MOST; i++) {
            snprintf(node, sizeof(node), "node%d-%d", round, i);
            (void)get(world, node, world->refusing);
        }
        assert_null(gb_peer_remotes_get(world->remotes, "more", "127.0.0.1", 1));
        wait_until_left(world, 0);
    }
}

RUN_TESTS(NULL, NULL)
