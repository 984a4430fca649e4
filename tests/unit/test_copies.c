/* copies: the label by which a copy is known again (client/peer/copies.h). */
#include "tests/cases.h"

#include "client/peer/copies.c"

static void expect_mark(const char *own, const char *origin, uint64_t revision, size_t kept)
{
    char label[GB_PEER_COPY_LABEL], found[GB_PEER_NODE_BYTES];
    uint64_t found_revision;
    size_t length;

    gb_peer_copies_label(label, own, origin, revision);
    assert_true(gb_peer_copies_read(label, found, &found_revision, &length));
    assert_string_equal(found, origin);
    assert_int_equal(found_revision, revision);
    assert_int_equal(length, kept);
    assert_memory_equal(label, own ? own : "", kept);
}

TEST(test_labels_of_copies)
{
    char long_one[256];

    expect_mark(NULL, "node1", 5, 0);
    expect_mark("step-42", "node1", UINT64_C(1) << 40, 7);
    expect_mark("x, copy of node9, revision 9", "a.b-c_d", 1,
                28); /* another machine may say this */
    expect_mark("copy of ", "node1", 5, 8);
    memset(long_one, 'l', 255);
    long_one[255] = '\0';
    expect_mark(long_one, "node1", 5, 0); /* there is no room for it */
    long_one[200] = '\0';
    expect_mark(long_one, "node1", 5, 200);
}

TEST(test_labels_of_others)
{
    static const char *const labels[] = {
        "",
        "step-42",
        "copy of",
        "copy of node1",
        "copy of node1, revision ",
        "copy of node1, revision 5 ",
        "copy of node1, revision 5, and more",
        "a copy of node1, revision 5",
        "acopy of node1, revision 5",
        ",copy of node1, revision 5",
        "copy of , revision 5",
    };
    char origin[GB_PEER_NODE_BYTES];
    uint64_t revision;
    size_t own = 77;

    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        assert_false(gb_peer_copies_read(labels[i], origin, &revision, &own));
        assert_int_equal(own, 77); /* as copies.h says */
    }
}

RUN_TESTS(NULL, NULL)
