/* serve: which connections give way to others, by sessions that are none. */
#include "tests/cases.h"

#include "client/peer/serve/serve.c"

static const struct gb_peer_session *closed;

void gb_peer_session_close(struct gb_peer_session *session)
{
    assert_null(closed);
    closed = session;
}

enum gb_peer_session_holds gb_peer_session_holds(const struct gb_peer_session *session)
{
    return GB_PEER_SESSION_OPEN;
}

bool gb_peer_link_spoke(const struct gb_peer_link *link)
{
    return true;
}

uint64_t gb_peer_session_idle(const struct gb_peer_session *session)
{
    return 0;
}

struct gb_peer_session *gb_peer_session_new(const struct gb_peer_parts *parts, int fd,
                                            const struct gb_peer_session_events *events, void *user)
{
    return NULL;
}

struct gb_peer_lease *gb_peer_session_lease(const struct gb_peer_session *session, uint64_t id)
{
    return NULL;
}

bool gb_peer_session_reads(const struct gb_peer_session *session, uint64_t version)
{
    return false;
}

void gb_peer_session_tick(struct gb_peer_session *session)
{
}

/* Of more machines than may wait the one that connected first is the last to shake hands: it ends
   the next oldest, and not itself. */
/* RELIABILITY.md: Other machines 3 */
TEST(test_the_last_handshake_of_the_first_connection)
{
    static struct gb_peer_session sessions[WAITING_MOST + 1];
    const struct gb_peer_parts parts = {.loop = uv_default_loop()};
    static struct gb_peer_serve serve;

    serve.parts = &parts;
    for (unsigned i = 0; i <= WAITING_MOST; i++) {
        serve.all[serve.count++] = (struct connection){.session = &sessions[i], .number = i};
        snprintf(sessions[i].node, sizeof(sessions[i].node), "m%u", i);
    }
    assert_true(on_open(&sessions[0], "m0", &serve));
    assert_ptr_equal(closed, &sessions[1]);
    assert_int_equal(serve.count, WAITING_MOST);
    assert_int_equal(uv_loop_close(parts.loop), 0);
}

RUN_TESTS(NULL, NULL)
