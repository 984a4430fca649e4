/* copies: the note by which a copy is known again (client/peer/content/copies.h). */
#include "tests/cases.h"

#include "client/peer/content/copies.c"

TEST(test_notes_of_copies)
{
    static const char *const origins[] = {"node1", "a.b-c_d", "n"};
    char note[GB_PEER_COPY_NOTE], origin[GB_PEER_NODE_BYTES], longest[GB_PEER_NODE_BYTES];
    uint64_t revision;

    for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++) {
        gb_peer_copies_note(note, origins[i], UINT64_C(5) << (20 * i));
        assert_true(gb_peer_copies_read(note, origin, &revision));
        assert_string_equal(origin, origins[i]);
        assert_int_equal(revision, UINT64_C(5) << (20 * i));
    }
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    gb_peer_copies_note(note, longest, UINT64_MAX);
    assert_true(gb_peer_copies_read(note, origin, &revision));
    assert_string_equal(origin, longest);
}

TEST(test_other_notes)
{
    static const char *const notes[] = {
        "",
        "mine",
        "copy of node1",
        "copy of node1, revision ",
        "copy of node1, revision 5 ",
        "copy of node1, revision 05",
        "copy of node1, revision 5, and more",
        "a copy of node1, revision 5",
        "copy of , revision 5",
    };
    char origin[GB_PEER_NODE_BYTES];
    uint64_t revision;

    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
        assert_false(gb_peer_copies_read(notes[i], origin, &revision));
}

RUN_TESTS(NULL, NULL)
