/* Segment handles, in requests and in replies. */
#include "tests/cases.h"

#include "proto/wire/handle.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* base64 of 0, 1, … 63 */
#define IPC                                                                                        \
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="

static const struct gb_path params = {.key = "params"};
static const struct gb_path handles = {.up = &params, .key = "handles"};
static const struct gb_path first = {.up = &handles, .index = 0};

static struct gb_pool pool;

static int end_pool(void **state)
{
    gb_pool_end(&pool);
    return 0;
}

static struct gb_json checked(const char *text)
{
    struct gb_error error;
    struct gb_json value;

    if (gb_json_check(text, strlen(text), &pool, &value, &error) != 0)
        fail_msg("%s: %s", text, error.message);
    return value;
}

TEST(test_requests)
{
    struct gb_handle handle;
    struct gb_error error;

    assert_int_equal(gb_handle_read(checked("{\"kind\":\"memfd\",\"fd\":15,\"bytes\":4096,"
                                            "\"device\":\"host\"}"),
                                    &first, &pool, &handle, &error),
                     0);
    assert_int_equal(handle.kind, GB_HANDLE_MEMFD);
    assert_int_equal(handle.fd, 15);
    assert_int_equal(handle.bytes, 4096);
    assert_string_equal(handle.device, "host");
    assert_int_equal(gb_handle_read(checked("{\"kind\":\"cuda_fd\",\"fd\":0,\"bytes\":1,"
                                            "\"device\":\"cuda:0\"}"),
                                    &first, &pool, &handle, &error),
                     0);
    assert_int_equal(handle.kind, GB_HANDLE_CUDA_FD);
    assert_string_equal(handle.device, "cuda:0");
    assert_int_equal(gb_handle_read(checked("{\"kind\":\"cuda_ipc\",\"ipc\":\"" IPC
                                            "\",\"bytes\":4503599627370495,\"device\":\"GPU-1\"}"),
                                    &first, &pool, &handle, &error),
                     0);
    assert_int_equal(handle.kind, GB_HANDLE_CUDA_IPC);
    for (unsigned i = 0; i < GB_IPC_BYTES; i++)
        assert_int_equal(handle.ipc[i], i);
    assert_int_equal(handle.bytes, 4503599627370495);
}

/* `message` without the path of the handle */
static const struct {
    const char *text, *message;
} refused_requests[] = {
    {"[]", ": expected an object, found an array"},
    {"{}", ".kind: missing"},
    {"{\"kind\":\"file\",\"fd\":0,\"bytes\":1,\"device\":\"host\"}",
     ".kind: expected \"memfd\", \"cuda_fd\", \"cuda_ipc\", \"hip_fd\" or \"hip_ipc\", not "
     "\"file\""},
    {"{\"kind\":\"memfd\",\"bytes\":1,\"device\":\"host\"}", ".fd: missing; kind memfd needs it"},
    {"{\"kind\":\"memfd\",\"fd\":16,\"bytes\":1,\"device\":\"host\"}",
     ".fd: expected an integer from 0 to 15, found 16"},
    {"{\"kind\":\"memfd\",\"fd\":0,\"bytes\":0,\"device\":\"host\"}",
     ".bytes: expected an integer from 1 to 4503599627370495, found 0"},
    {"{\"kind\":\"memfd\",\"fd\":0,\"device\":\"host\"}", ".bytes: missing"},
    {"{\"kind\":\"memfd\",\"fd\":0,\"bytes\":1}", ".device: missing"},
    {"{\"kind\":\"memfd\",\"fd\":0,\"bytes\":1,\"device\":\"cuda:0\"}",
     ".device: a memfd cannot be on \"cuda:0\""},
    {"{\"kind\":\"cuda_fd\",\"fd\":0,\"bytes\":1,\"device\":\"host\"}",
     ".device: a cuda_fd cannot be on \"host\""},
    {"{\"kind\":\"cuda_fd\",\"fd\":0,\"bytes\":1,\"device\":\"hip:0\"}",
     ".device: a cuda_fd cannot be on \"hip:0\""},
    {"{\"kind\":\"hip_ipc\",\"fd\":0,\"bytes\":1,\"device\":\"GPU-1\"}",
     ".device: a hip_ipc cannot be on \"GPU-1\""},
    {"{\"kind\":\"memfd\",\"fd\":0,\"ipc\":\"\",\"bytes\":1,\"device\":\"host\"}",
     ".ipc: kind memfd has none"},
    {"{\"kind\":\"cuda_ipc\",\"fd\":0,\"bytes\":1,\"device\":\"GPU-1\"}",
     ".ipc: missing; kind cuda_ipc needs it"},
    {"{\"kind\":\"cuda_ipc\",\"fd\":0,\"ipc\":\"" IPC "\",\"bytes\":1,\"device\":\"GPU-1\"}",
     ".fd: kind cuda_ipc has none"},
    {"{\"kind\":\"cuda_ipc\",\"ipc\":\"AAAA\",\"bytes\":1,\"device\":\"GPU-1\"}",
     ".ipc: expected 64 bytes in base64"},
    {"{\"kind\":\"cuda_ipc\",\"ipc\":\"****\",\"bytes\":1,\"device\":\"GPU-1\"}",
     ".ipc: expected 64 bytes in base64"},
    {"{\"kind\":\"cuda_ipc\",\"ipc\":\"" IPC "AAAA\",\"bytes\":1,\"device\":\"GPU-1\"}",
     ".ipc: expected a string of at most 88 bytes, found 92"},
    {"{\"kind\":\"memfd\",\"fd\":0,\"bytes\":1,\"device\":\"host\",\"uuid\":\"\"}",
     ".uuid: unknown member"},
};

TEST(test_refused_requests)
{
    for (size_t i = 0; i < COUNT(refused_requests); i++) {
        struct gb_handle handle, before;
        struct gb_error error;
        char expected[256];

        memset(&handle, 0x5a, sizeof(handle));
        before = handle;
        assert_int_equal(
            gb_handle_read(checked(refused_requests[i].text), &first, &pool, &handle, &error),
            GPUBUF_E_INVALID);
        snprintf(expected, sizeof(expected), "params.handles[0]%s", refused_requests[i].message);
        assert_string_equal(error.message, expected);
        assert_memory_equal(&handle, &before, sizeof(handle));
    }
}

static const char *const segments[] = {
    "{\"id\":0,\"device\":\"host\",\"bytes\":1,\"access\":\"r\","
    "\"handle\":{\"kind\":\"memfd\",\"fd\":0}}",
    "{\"id\":4503599627370495,\"device\":\"GPU-1\",\"bytes\":4503599627370495,\"access\":\"rw\","
    "\"handle\":{\"kind\":\"cuda_fd\",\"fd\":15}}",
    "{\"id\":7,\"device\":\"GPU-1\",\"bytes\":2097152,\"access\":\"r\","
    "\"handle\":{\"kind\":\"cuda_ipc\",\"ipc\":\"" IPC "\",\"uuid\":\"GPU-1\"}}",
};

TEST(test_segments)
{
    for (size_t i = 0; i < COUNT(segments); i++) {
        struct gb_segment_info segment;
        struct gb_writer writer;
        struct gb_error error;

        assert_int_equal(gb_segment_read(checked(segments[i]), NULL, &pool, &segment, &error), 0);
        assert_int_equal(segment.handle.kind, i);
        assert_int_equal(segment.writable, i == 1);
        gb_writer_init(&writer, 0);
        gb_segment_write(&writer, &segment);
        char *text = gb_writer_take(&writer, NULL);
        assert_string_equal(text, segments[i]);
        free(text);
    }
}

TEST(test_segments_with_more)
{
    struct gb_segment_info segment;
    struct gb_error error;

    assert_int_equal(
        gb_segment_read(
            checked("{\"x\":1,\"id\":3,\"device\":\"host\",\"bytes\":1,\"access\":\"rw\","
                    "\"handle\":{\"kind\":\"memfd\",\"fd\":2,\"y\":{}},\"z\":[]}"),
            NULL, &pool, &segment, &error),
        0);
    assert_int_equal(segment.id, 3);
    assert_int_equal(segment.handle.fd, 2);
}

TEST(test_refused_segments)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"7", "params: expected an object, found a number"},
        {"{\"device\":\"host\",\"bytes\":1,\"access\":\"r\",\"handle\":{}}", "params.id: missing"},
        {"{\"id\":1,\"device\":\"host\",\"bytes\":1,\"access\":\"w\","
         "\"handle\":{\"kind\":\"memfd\",\"fd\":0}}",
         "params.access: expected \"r\" or \"rw\", not \"w\""},
        {"{\"id\":1,\"device\":\"host\",\"bytes\":0,\"access\":\"r\",\"handle\":{}}",
         "params.bytes: expected an integer from 1 to 4503599627370495, found 0"},
        {"{\"id\":1,\"device\":\"host\",\"bytes\":1,\"access\":\"r\",\"handle\":{}}",
         "params.handle.kind: missing"},
        {"{\"id\":1,\"device\":\"host\",\"bytes\":1,\"access\":\"r\","
         "\"handle\":{\"kind\":\"memfd\"}}",
         "params.handle.fd: missing; kind memfd needs it"},
        {"{\"id\":1,\"device\":\"GPU-1\",\"bytes\":1,\"access\":\"r\","
         "\"handle\":{\"kind\":\"cuda_ipc\",\"ipc\":\"" IPC "\"}}",
         "params.handle.uuid: missing; kind cuda_ipc needs it"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct gb_segment_info segment, before;
        struct gb_error error;

        memset(&segment, 0x5a, sizeof(segment));
        before = segment;
        assert_int_equal(gb_segment_read(checked(rows[i].text), &params, &pool, &segment, &error),
                         GPUBUF_E_INVALID);
        assert_string_equal(error.message, rows[i].message);
        assert_memory_equal(&segment, &before, sizeof(segment));
    }
}

RUN_TESTS(NULL, end_pool)
