/* frame: lines out of arbitrary pieces, limits, the queue of descriptors, every allocation failed.
 */
#include <stdio.h>
#include <string.h>

#include "tests/cases.h"

#include "descriptors.h"
#include "failing.h"
#include "random.h"

#include "proto/frame.c"

enum { LINE = GB_LIMIT(line_bytes) };

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

static void assert_none(struct gb_frame *frame)
{
    const char *line;
    size_t length;
    assert_int_equal(gb_frame_next(frame, &line, &length), 0);
    assert_int_equal(gb_frame_next(frame, &line, &length), 0);
}

TEST(test_lines)
{
    struct gb_frame frame = {0};
    char *bytes = begin(&frame, "one\n\ntwo\r\nthr", 13);
    assert_line(&frame, "one");
    assert_line(&frame, "");
    assert_line(&frame, "two\r");
    assert_none(&frame);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_true(gb_frame_is_partial(&frame));

    bytes = begin(&frame, "e", 1);
    assert_none(&frame);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_true(gb_frame_is_partial(&frame));

    bytes = begin(&frame, "e\nfour\n", 7);
    assert_line(&frame, "three");
    assert_line(&frame, "four");
    assert_none(&frame);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    /* An idle frame holds nothing. */
    assert_false(gb_frame_is_partial(&frame));
    assert_null(frame.partial);
    gb_frame_end(&frame);
    gb_frame_end(&frame);
    assert_int_equal(failing_blocks, 0);
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

/* Lines that nobody took before finish are there afterwards. */
TEST(test_lines_kept)
{
    struct gb_frame frame = {0};
    char *bytes = begin(&frame, "a\nb\nc\nd", 7);
    assert_line(&frame, "a");
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_true(gb_frame_is_partial(&frame));
    bytes = begin(&frame, "D\n", 2);
    assert_line(&frame, "b");
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_false(gb_frame_is_partial(&frame)); /* whole lines only */
    bytes = begin(&frame, "e\n", 2);
    assert_line(&frame, "c");
    assert_line(&frame, "dD");
    assert_line(&frame, "e");
    assert_none(&frame);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    assert_null(frame.partial);
}

/* The longest line has LINE bytes with its newline, in whatever pieces it comes. */
TEST(test_longest_line)
{
    static const size_t pieces[] = {2 * LINE, LINE, LINE - 1, LINE / 2 + 7, 65536};
    char *text = malloc(LINE + 1);
    memset(text, 'x', LINE + 1);
    for (size_t extra = 0; extra < 2; extra++) {
        for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
            size_t whole = LINE + extra; /* with its newline */
            struct gb_frame frame = {0};
            const char *line;
            size_t length, at = 0;
            int rc = 0;
            text[whole - 1] = '\n';
            while (rc == 0 && at < whole) {
                size_t piece = whole - at < pieces[k] ? whole - at : pieces[k];
                char *bytes = begin(&frame, text + at, piece);
                at += piece;
                rc = gb_frame_next(&frame, &line, &length);
                if (rc == 1) {
                    assert_int_equal(length, LINE - 1);
                    assert_memory_equal(line, text, length);
                }
                if (rc >= 0)
                    assert_int_equal(gb_frame_finish(&frame), 0);
                free(bytes);
            }
            assert_int_equal(rc, extra == 0 ? 1 : GPUBUF_E_LIMIT);
            gb_frame_end(&frame);
            text[whole - 1] = 'x';
        }
    }
    /* Without its newline it is refused as soon as that could only come too late. */
    struct gb_frame frame = {0};
    const char *line;
    size_t length;
    char *bytes = begin(&frame, text, LINE - 1);
    assert_int_equal(gb_frame_next(&frame, &line, &length), 0);
    assert_int_equal(gb_frame_finish(&frame), 0);
    free(bytes);
    bytes = begin(&frame, "x", 1);
    assert_int_equal(gb_frame_next(&frame, &line, &length), GPUBUF_E_LIMIT);
    free(bytes);
    gb_frame_end(&frame);
    free(text);
    assert_int_equal(failing_blocks, 0);
}

/* Any stream in any pieces, read on or left for later, comes out as its lines. */
TEST(test_pieces)
{
    struct test_random random = {.state = 11};
    for (int round = 0; round < 3000; round++) {
        char stream[2000];
        size_t length = test_random_below(&random, sizeof(stream));
        unsigned rarity = 1 + test_random_below(&random, 300);
        for (size_t i = 0; i < length; i++)
            stream[i] = test_random_below(&random, rarity) ? (char)('a' + i % 26) : '\n';
        struct gb_frame frame = {0};
        size_t at = 0, next = 0; /* offered; the first byte of the next line */
        while (at < length) {
            size_t piece = 1 + test_random_below(&random, 400);
            piece = piece < length - at ? piece : length - at;
            char *bytes = begin(&frame, stream + at, piece);
            at += piece;
            const char *line;
            size_t found;
            while ((at == length || test_random_below(&random, 8) > 0) &&
                   gb_frame_next(&frame, &line, &found) == 1) {
                assert_true(next + found < at);
                assert_memory_equal(line, stream + next, found);
                assert_int_equal(stream[next + found], '\n');
                assert_null(memchr(line, '\n', found));
                next += found + 1;
            }
            assert_int_equal(gb_frame_finish(&frame), 0);
            free(bytes);
            assert_int_equal(gb_frame_is_partial(&frame), next < at && stream[at - 1] != '\n');
        }
        assert_true(next == length || memchr(stream + next, '\n', length - next) == NULL);
        gb_frame_end(&frame);
    }
    assert_int_equal(failing_blocks, 0);
}

/* ---- descriptors ---- */

static void make_fds(int *fds, unsigned count, unsigned first_mark)
{
    for (unsigned i = 0; i < count; i++) {
        fds[i] = marked_fd(first_mark + i);
        assert_true(fds[i] >= 0);
    }
}

TEST(test_fds_in_order)
{
    size_t before = open_fds();
    struct gb_frame frame = {0};
    int fds[16];
    unsigned pushed = 0, taken = 0;
    struct test_random random = {.state = 2};
    while (taken < 300) {
        unsigned count = test_random_below(&random, 9);
        if (pushed - taken + count <= GB_LIMIT(pending_fds)) {
            make_fds(fds, count, pushed);
            assert_int_equal(gb_frame_push_fds(&frame, fds, count), 0);
            pushed += count;
        }
        count = test_random_below(&random, 9);
        int rc = gb_frame_take_fds(&frame, fds, count);
        assert_int_equal(rc, count > pushed - taken ? GPUBUF_E_PROTOCOL : 0);
        for (unsigned i = 0; rc == 0 && i < count; i++) {
            assert_int_equal(mark_of(fds[i]), taken++);
            close(fds[i]);
        }
        assert_int_equal(frame.fd_count, pushed - taken);
        assert_true((frame.fds == NULL) == (frame.fd_count == 0));
    }
    gb_frame_end(&frame);
    assert_int_equal(open_fds(), before);
    assert_int_equal(failing_blocks, 0);
}

TEST(test_fds_limit)
{
    enum { MOST = GB_LIMIT(pending_fds) };
    size_t before = open_fds();
    struct gb_frame frame = {0};
    int fds[MOST + 1];
    make_fds(fds, MOST - 1, 0);
    assert_int_equal(gb_frame_push_fds(&frame, fds, MOST - 1), 0);
    make_fds(fds, 2, 0);
    assert_int_equal(gb_frame_push_fds(&frame, fds, 2), GPUBUF_E_LIMIT);
    assert_int_equal(open_fds(), before + MOST - 1);
    make_fds(fds, 1, 500);
    assert_int_equal(gb_frame_push_fds(&frame, fds, 1), 0);
    assert_int_equal(gb_frame_take_fds(&frame, fds, MOST + 1), GPUBUF_E_PROTOCOL);
    assert_int_equal(gb_frame_take_fds(&frame, fds, MOST), 0);
    assert_int_equal(mark_of(fds[MOST - 1]), 500);
    for (unsigned i = 0; i < MOST; i++)
        close(fds[i]);
    gb_frame_end(&frame);
    assert_int_equal(open_fds(), before);
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
