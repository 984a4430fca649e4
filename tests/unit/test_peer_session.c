/* session of gpubufd-peer: each request is answered, also without memory. */
#include "tests/cases.h"

#include "failing.h"
#define gb_peer_link_send_error note_error
/* The order in which they name each other. */
#include "client/peer/serving.c"

#include "client/peer/reading.c"

#include "client/peer/session.c"

static struct {
    unsigned count;
    uint64_t request;
    int code;
} noted;

void note_error(struct gb_peer_link *link, uint64_t request, const struct gb_error *error)
{
    (void)link;
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
    struct gb_peer_session_params params = {.method = {"find", 4}, .name = {"x", 1}};

    failing_from(1, 1);
    stat_name(&session, 7, &params, on_found);
    expect_answer(7);
    failing_from(1, 1);
    pass_chunk(&session, 9, &lease, &params);
    expect_answer(9);
    assert_int_equal(lease.uses, 1);
    assert_int_equal(session.busy, 0);
    assert_int_equal(failing_blocks, 0);
}

RUN_TESTS(NULL, NULL)
