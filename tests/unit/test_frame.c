/* frame: what it holds, and every allocation failed. fuzz_frame.c has the lines and descriptors. */
#include "tests/cases.h"

#include "descriptors.h"
#include "failing.h"

#include "proto/frame.c"

/* Offers a copy of `text` that is gone after gb_frame_finish. */
static char *begin(struct gb_frame *frame, const char *text, size_t length)
{
    char *bytes = malloc(length > 0 ? length : 1);
    assert_non_null(bytes);
    memcpy(bytes, text, length);
    gb_frame_begin(frame, bytes, length);
    return bytes;
}

static void assert_line(struct gb_frame *frame, const char *expected)
{
    const char *line = NULL;
    size_t length = 0;
    assert_int_equal(gb_frame_next(frame, &line, &length), 1);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(line, expected, length);
}

TEST(test_nothing_held_after_a_joined_line)
{
    struct gb_frame frame = {0};
    char *bytes = begin(&frame, "ab", 2);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    bytes = begin(&frame, "c\n", 2);
    assert_line(&frame, "abc");
    /* finish without asking for more */
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_false(gb_frame_is_partial(&frame));
    assert_null(frame.partial);
    assert_int_equal(failing_blocks, 0);
}

/* ---- every allocation failed ---- */

static int use(struct gb_frame *frame)
{
    static char first[] = "a\nbeginning", second[] = " and on ", third[300] = "end\n";
    char *inputs[] = {first, second, third};
    const size_t lengths[] = {sizeof(first) - 1, sizeof(second) - 1, sizeof(third)};
    memset(third + 4, 'z', sizeof(third) - 4);
    for (size_t i = 0; i < 3; i++) {
        const char *line;
        size_t length;
        int rc, fd = marked_fd(1);
        if ((rc = gb_frame_push_fds(frame, &fd, 1)) < 0)
            return rc;
        gb_frame_begin(frame, inputs[i], lengths[i]);
        while ((rc = gb_frame_next(frame, &line, &length)) > 0)
            continue;
        if (rc < 0 || (rc = gb_frame_finish(frame)) < 0)
            return rc;
    }
    return 0;
}

TEST(test_no_memory)
{
    size_t before = open_fds();
    for (size_t n = 1;; n++) {
        struct gb_frame frame = {0};
        failing_from(n, 1);
        int rc = use(&frame);
        size_t calls = failing_calls;
        failing_from(0, 0);
        assert_int_equal(rc, calls >= n ? GPUBUF_E_NO_MEMORY : 0);
        gb_frame_end(&frame);
        assert_int_equal(failing_blocks, 0);
        assert_int_equal(open_fds(), before);
        if (rc == 0) {
            assert_true(n > 4);
            break;
        }
    }
}

RUN_TESTS(NULL, NULL)
