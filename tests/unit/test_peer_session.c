/* session of gpubufd-peer: each request is answered, also without memory. */
#include "tests/cases.h"

#include "failing.h"
#define gb_peer_link_send_error note_error
/* The order in which they name each other. */
#include "client/peer/serve/serving.c"

#include "client/peer/serve/reading.c"

#include "client/peer/serve/session.c"

static struct {
    unsigned count;
    uint64_t request;
    int code;
} noted;

void note_error(struct gb_peer_link *link, uint64_t request, const struct gb_error *error)
{
    noted.count++;
    noted.request = request;
    noted.code = error->code;
}

static void expect_answer(uint64_t request)
{
    assert_int_equal(noted.count, 1);
    assert_int_equal(noted.request, request);
    assert_int_equal(noted.code, GPUBUF_E_NO_MEMORY);
    noted.count = 0;
}

TEST(test_each_request_is_answered_without_memory)
{
    struct gb_peer_session session = {0};
    struct gb_peer_lease lease = {.uses = 1};
    struct gb_peer_session_params params = {.method = {"open", 4}, .name = {"x", 1}};

    failing_from(1, 1);
    stat_name(&session, 7, &params);
    expect_answer(7);
    failing_from(1, 1);
    pass_chunk(&session, 9, &lease, &params);
    expect_answer(9);
    assert_int_equal(lease.uses, 1);
    assert_int_equal(session.busy, 0);
    assert_int_equal(failing_blocks, 0);
}

static struct gb_peer_lease *lend(struct gb_peer_session *session, uint64_t id, uint64_t used)
{
    struct gb_peer_lease *lease = calloc(1, sizeof(*lease));

    assert_non_null(lease);
    *lease = (struct gb_peer_lease){.id = id, .used = used, .uses = 1};
    gb_list_append(&session->leases, &lease->of_session);
    session->lease_count++;
    return lease;
}

/* A machine that asks nothing of its leases does not hold memory by them for ever. */
/* RELIABILITY.md: Other machines 5 */
TEST(test_leases_that_are_not_used_end)
{
    struct gb_peer_session session = {0};
    struct gb_peer_lease *slow = gb_peer_lease_use(lend(&session, 1, 1000)); /* a chunk of it */

    lend(&session, 2, 1000);
    lend(&session, 3, 2000);
    gb_peer_session_end_idle(&session, 1000 + LEASE_MS - 1);
    assert_int_equal(session.lease_count, 3);
    gb_peer_session_end_idle(&session, 1000 + LEASE_MS);
    assert_int_equal(session.lease_count, 2);
    assert_ptr_equal(gb_peer_session_lease(&session, 1), slow);
    assert_null(gb_peer_session_lease(&session, 2));
    gb_peer_session_end_idle(&session, 2000 + LEASE_MS);
    gb_peer_lease_drop(slow);
    gb_peer_session_end_idle(&session, 2000 + 2 * LEASE_MS - 1);
    assert_int_equal(session.lease_count, 1);
    gb_peer_session_end_idle(&session, 2000 + 2 * LEASE_MS);
    assert_true(gb_list_empty(&session.leases));
    assert_int_equal(session.lease_count, 0);
}

RUN_TESTS(NULL, NULL)
