/* lane: chunks by UCX, over its TCP: what comes whole, too short, too long, unasked, and never. */
#include "tests/cases.h"

#include "client/peer/link/lane.h"
#include "client/peer/link/ucx.h"

enum { TAG = 7, LARGE = 64 << 20 };

static struct gb_peer_ucx ucx;
static uv_loop_t loop;

struct result {
    bool over;
    int status;
    char message[200];
};

static void on_result(void *user, int status, const struct gb_error *error)
{
    struct result *result = user;

    assert_false(result->over);
    assert_int_equal(status < 0, error != NULL);
    result->over = true;
    result->status = status;
    if (error)
        strcpy(result->message, error->message);
}

struct ends {
    struct gb_peer_lane *in, *out;
};

static void connect_to(struct gb_peer_lane *lane, const struct gb_peer_lane *other)
{
    struct gb_error error;
    struct gb_writer writer;

    assert_non_null(lane);
    assert_non_null(other);
    gb_writer_init(&writer, 0);
    gb_peer_lane_write(other, &writer);
    gb_write_char(&writer, '\0');
    assert_false(writer.failed);
    assert_memory_equal(writer.data, "\"address\":\"", 11);
    char *address = writer.data + 11, *end = strchr(address, '"');
    assert_non_null(end);
    assert_true(end - address <= GB_PEER_LANE_ADDRESS_MOST);
    *end = '\0';
    assert_int_equal(gb_peer_lane_connect(lane, address, &error), 0);
    gb_writer_end(&writer);
}

static struct ends make(void)
{
    struct gb_error error;
    struct ends ends = {gb_peer_lane_new(&ucx, &loop, &error),
                        gb_peer_lane_new(&ucx, &loop, &error)};

    connect_to(ends.in, ends.out);
    connect_to(ends.out, ends.in);
    return ends;
}

static void wait_for(const struct result *result)
{
    while (!result->over)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void end(struct ends ends)
{
    gb_peer_lane_close(ends.in);
    gb_peer_lane_close(ends.out);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
}

/* In a block of exactly its size, so that the sanitizer sees every byte too far. */
static char *filled(size_t bytes, int seed)
{
    char *memory = malloc(bytes);

    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (char)(seed + (int)(i * 7 + i / 256));
    return memory;
}

TEST(test_content_comes_whole)
{
    static const size_t sizes[] = {1, 1000, 65536, 1 << 20, 9000001, LARGE};
    struct ends ends = make();

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct result came = {0}, went = {0};
        char *from = filled(sizes[i], (int)i + 1), *to = calloc(1, sizes[i]);

        assert_true(gb_peer_lane_receive(ends.in, TAG + i, to, sizes[i], on_result, &came));
        assert_true(gb_peer_lane_send(ends.out, TAG + i, from, sizes[i], on_result, &went));
        assert_false(came.over || went.over);
        wait_for(&came);
        wait_for(&went);
        assert_int_equal(came.status, 0);
        assert_int_equal(went.status, 0);
        assert_memory_equal(from, to, sizes[i]);
        free(from);
        free(to);
    }
    end(ends);
}

/* The receive of `awaited` bytes fails where `sent` is sent. */
static void refuse(uint64_t tag, size_t sent, size_t awaited, const char *sentence)
{
    struct ends ends = make();
    struct result came = {0}, went = {0};
    char *from = filled(sent, 1), *to = calloc(1, awaited);

    assert_true(gb_peer_lane_receive(ends.in, TAG, to, awaited, on_result, &came));
    assert_true(gb_peer_lane_send(ends.out, tag, from, sent, on_result, &went));
    wait_for(&came);
    assert_true(came.status < 0);
    assert_non_null(strstr(came.message, sentence));
    end(ends);
    assert_true(went.over);
    free(from);
    free(to);
}

TEST(test_another_length)
{
    refuse(TAG, 99, 100, "99 bytes came in place of 100");
    refuse(TAG, 999999, 1 << 20, "999999 bytes came in place of 1048576");
    refuse(TAG, 101, 100, "runcated");
    refuse(TAG, (1 << 20) + 1, 1 << 20, "runcated");
}

TEST(test_unasked)
{
    refuse(TAG + 1, 100, 100, "nobody awaits");
    refuse(TAG + 1, 1 << 20, 1 << 20, "nobody awaits");
}

/* After the close the memory is anybody's: the sanitizer sees what is written there. */
TEST(test_closed_in_the_middle)
{
    for (int closes_sender = 0; closes_sender < 2; closes_sender++) {
        struct ends ends = make();
        struct result came = {0}, went = {0};
        char *from = filled(LARGE, 1), *to = calloc(1, LARGE);

        assert_true(gb_peer_lane_receive(ends.in, TAG, to, LARGE, on_result, &came));
        assert_true(gb_peer_lane_send(ends.out, TAG, from, LARGE, on_result, &went));
        while (!to[0])
            (void)uv_run(&loop, UV_RUN_ONCE);
        assert_false(came.over);
        gb_peer_lane_close(closes_sender ? ends.out : ends.in);
        assert_true(closes_sender ? went.over : came.over);
        assert_int_equal(closes_sender ? went.status : came.status, GPUBUF_E_CANCELED);
        free(closes_sender ? from : to);
        *(closes_sender ? &ends.out : &ends.in) = NULL;
        for (int i = 0; i < 1000; i++)
            (void)uv_run(&loop, UV_RUN_NOWAIT);
        end(ends);
        assert_true(came.over && went.over);
        free(closes_sender ? to : from);
    }
}

TEST(test_nobody_is_there)
{
    struct ends ends = make();
    struct result went = {0};
    char *from = filled(1 << 20, 1);

    gb_peer_lane_close(ends.in);
    ends.in = NULL;
    assert_true(gb_peer_lane_send(ends.out, TAG, from, 1 << 20, on_result, &went));
    wait_for(&went);
    assert_int_equal(went.status, GPUBUF_E_UNAVAILABLE);
    end(ends);
    free(from);
}

TEST(test_no_address)
{
    static const char *const texts[] = {"", "A", "AA=", "A===", "AAAA "};
    struct gb_error error;
    struct gb_peer_lane *lane = gb_peer_lane_new(&ucx, &loop, &error);

    assert_non_null(lane);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(gb_peer_lane_connect(lane, texts[i], &error), GPUBUF_E_INVALID);
    gb_peer_lane_close(lane);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
}

int main(void)
{
    struct gb_error error;

    (void)setenv("UCX_TLS", "tcp", 1);
    (void)setenv("UCX_NET_DEVICES", "lo", 1);
    /* UCX's hooks of madvise() run in threads that end, which ThreadSanitizer does not survive. */
    (void)setenv("UCX_MEM_EVENTS", "n", 1);
    if (gb_peer_ucx_open(&ucx, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (uv_loop_init(&loop) != 0)
        return 1;
    int failed = cmocka_run_group_tests(listed_tests, NULL, NULL);
    gb_peer_ucx_close(&ucx);
    return failed || uv_loop_close(&loop) != 0;
}
