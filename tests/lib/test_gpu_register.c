/* Memory of the program's own, shared where it lies. */
#include "gpu.h"
#include "proto/wire/json.h"

#define FLOATS                                                                                     \
    "{\"kind\":\"array\",\"dtype\":\"float32\",\"shape\":[256],"                                   \
    "\"data\":{\"handle\":0,\"offset\":1024,\"bytes\":1024}}"

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr pointer;
    OK(cu->cuMemAlloc(&pointer, bytes));
    fill_pattern(pointer, bytes);
    return pointer;
}

static void check_floats(struct gpubuf_client *client, const char *name, CUdeviceptr where)
{
    struct gpubuf_object *object = open_object(client, name);
    unsigned char seen[1024];
    CHECK(gpubuf_kind(object) == GPUBUF_KIND_ARRAY && gpubuf_length(object) == 256);
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, seen, sizeof(seen), NULL));
    for (size_t i = 0; i < sizeof(seen); i++)
        CHECK(seen[i] == (unsigned char)i);
    if (where)
        CHECK(address_of(object, GPUBUF_DATA) == where);
    gpubuf_release(object);
}

/* The producer registers an interior pointer, as those of a pool are, of both kinds of memory. */
static void produce(int socket)
{
    struct gpubuf_client *client = new_client(), *other = new_client();
    begin(1);
    CUdeviceptr legacy = allocate(4 * MB) + 256 * 3;
    CUdeviceptr vmm = map(create(1, 4 * MB), 4 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    vmm += 2 * MB + 512;
    for (size_t i = 0; i < 1024; i++)
        host(legacy + 1024)[i] = host(vmm + 1024)[i] = (unsigned char)i;

    uint64_t before = count_fds();
    const void *pointers[] = {(void *)(uintptr_t)legacy, (void *)(uintptr_t)vmm};
    const char *const names[] = {"legacy", "vmm"};
    for (int i = 0; i < 2; i++) {
        WORKS(client, gpubuf_register_device(client, names[i], pointers[i], 2048, FLOATS, NULL));
        /* In the process itself it is the same memory: of the legacy kind at the same place. */
        check_floats(client, names[i], i == 0 ? legacy + 1024 : 0);
        check_floats(other, names[i], i == 0 ? legacy + 1024 : 0);
        RETURNS(GPUBUF_E_EXISTS, client,
                gpubuf_register_device(client, names[i], pointers[i], 2048, FLOATS, NULL));
        RETURNS(GPUBUF_E_INVALID, client,
                gpubuf_register_device(client, "x", pointers[i], 2047, FLOATS, NULL));
        CHECK(strstr(gpubuf_errmsg(client), "layout_json"));
        RETURNS(GPUBUF_E_INVALID, client,
                gpubuf_register_device(client, "x", pointers[i], 2048, "{\"kind\":", NULL));
        RETURNS(GPUBUF_E_INVALID, client,
                gpubuf_register_device(client, "x", pointers[i], 2048, NULL, NULL));
        RETURNS(GPUBUF_E_INVALID, client,
                gpubuf_register_device(client, "a//b", pointers[i], 2048, FLOATS, NULL));
    }
    /* Past the end of the allocation. */
    RETURNS(GPUBUF_E_INVALID, client,
            gpubuf_register_device(client, "x", pointers[0], 4 * MB, FLOATS, NULL));
    RETURNS(GPUBUF_E_UNSUPPORTED, client,
            gpubuf_register_device(client, "x", pointers[1], 4 * MB, FLOATS, NULL));
    /* No device memory. */
    RETURNS(GPUBUF_E_INVALID, client,
            gpubuf_register_device(client, "x", names, 2048, FLOATS, NULL));
    RETURNS(GPUBUF_E_INVALID, client,
            gpubuf_register_device(client, "x", NULL, 2048, FLOATS, NULL));
    /* Memory of another process cannot be passed on. */
    struct gpubuf_create_options options = on_gpu("cuda:1");
    WORKS(client, gpubuf_put_bytes(client, "given", pointers[1], 2048, &options));
    struct gpubuf_object *given = open_object(client, "given");
    RETURNS(GPUBUF_E_UNSUPPORTED, client,
            gpubuf_register_device(client, "x", (void *)(uintptr_t)address_of(given, GPUBUF_DATA),
                                   2048, FLOATS, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "gpubuf_put"));
    gpubuf_release(given);
    WORKS(client, gpubuf_delete(client, "given"));
    /* Another device than the memory's. */
    options = on_gpu("cuda:0");
    RETURNS(GPUBUF_E_INVALID, client,
            gpubuf_register_device(client, "x", pointers[0], 2048, FLOATS, &options));
    CHECK(count_fds() <= before + 4); /* the daemon's segments, mapped, and the library's thread */
    step(socket);
    await(socket);
    gpubuf_disconnect(other);
    gpubuf_disconnect(client);
    step(socket);
    await(socket);
}

static void consume(int socket)
{
    CLIENT *client = new_client();
    check_floats(client, "legacy", 0);
    check_floats(client, "vmm", 0);
    struct gpubuf_object *held = open_object(client, "legacy"), *object = NULL;
    step(socket);
    await(socket);
    /* The producer's connection is gone, and with it what only the producer can vouch for. */
    RETURNS(GPUBUF_E_NOT_FOUND, client, gpubuf_open(client, "legacy", NULL, &object));
    CHECK(!object);
    unsigned char byte = 0; /* who has it open still reads */
    WORKS(client, gpubuf_read(held, GPUBUF_DATA, 77, &byte, 1, NULL));
    CHECK(byte == 77);
    check_floats(client, "vmm", 0);
    gpubuf_release(held);
}

GPU_TEST(test_register)
{
    size_t before = free_on(1);
    struct child producer = start_gpu(produce);
    await(producer.socket);
    struct child consumer = start_gpu(consume);
    await(consumer.socket);
    step(producer.socket);
    await(producer.socket);
    step(consumer.socket);
    ends_well(consumer);
    step(producer.socket);
    ends_well(producer);

    struct gpubuf_client *client = connect_client();
    ok(client, gpubuf_delete(client, "vmm"));
    gpubuf_disconnect(client);
    size_t taken = SIZE_MAX;
    for (int i = 0; i < 1000 && taken > 2 * MB; i++)
        taken = before - free_on(1);
    assert_in_range(taken, 0, 2 * MB); /* what `put` left with the daemon */
}

/* ---- in several parts ---- */

#define PARTS                                                                                      \
    "{\"kind\":\"table\",\"length\":100,\"columns\":["                                             \
    "{\"name\":\"a\",\"dtype\":\"int64\",\"length\":100,\"offset\":28,\"null_count\":-1,"          \
    "\"data\":{\"handle\":0,\"offset\":0,\"bytes\":1024},"                                         \
    "\"mask\":{\"handle\":1,\"offset\":0,\"bytes\":16}},"                                          \
    "{\"name\":\"b\",\"dtype\":\"uint8\",\"length\":100,"                                          \
    "\"data\":{\"handle\":2,\"offset\":4,\"bytes\":100}}]}"

static void check_parts(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_object *table = open_object(client, name), *column = NULL;
    int64_t values[128];
    unsigned char bytes[100], mask[16];
    WORKS(client, gpubuf_column(table, "a", &column));
    CHECK(gpubuf_offset(column) == 28 && gpubuf_length(column) == 100);
    WORKS(client, gpubuf_read(column, GPUBUF_DATA, 0, values, sizeof(values), NULL));
    WORKS(client, gpubuf_read(column, GPUBUF_MASK, 0, mask, sizeof(mask), NULL));
    CHECK(values[0] == 1000 && values[127] == 1127 && mask[0] == 0xa5 && mask[15] == 0xa5);
    gpubuf_release(column);
    WORKS(client, gpubuf_column(table, "b", &column));
    WORKS(client, gpubuf_read(column, GPUBUF_DATA, 0, bytes, sizeof(bytes), NULL));
    for (size_t i = 0; i < sizeof(bytes); i++)
        CHECK(bytes[i] == (unsigned char)(i + 4));
    gpubuf_release(column);
    gpubuf_release(table);
}

/* A column and its mask in two allocations of one kind; another column beside the mask. */
static void fill_parts(struct gpubuf_part *parts, CUdeviceptr first, CUdeviceptr second)
{
    for (size_t i = 0; i < 128; i++)
        ((int64_t *)(void *)host(first + 512))[i] = 1000 + (int64_t)i;
    memset(host(second + 64), 0xa5, 16);
    for (size_t i = 0; i < 104; i++)
        host(second + 256)[i] = (unsigned char)i;
    parts[0] = (struct gpubuf_part){(void *)(uintptr_t)(first + 512), 1024};
    parts[1] = (struct gpubuf_part){(void *)(uintptr_t)(second + 64), 16};
    parts[2] = (struct gpubuf_part){(void *)(uintptr_t)(second + 256), 104};
}

static CUdeviceptr map_one(int device)
{
    return map(create(device, 2 * MB), 2 * MB, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void on_registered(struct gpubuf_client *client, int status, const char *text, size_t length,
                          void *arg)
{
    *(int *)arg = status;
}

#define NO_ANSWER 99

/* The daemon answers when its mover is done, which other calls do not wait for. */
static void await_answer(struct gpubuf_client *client, const int *status)
{
    while (*status == NO_ANSWER) {
        struct pollfd fd = {.fd = gpubuf_fd(client), .events = gpubuf_events(client)};
        CHECK(poll(&fd, 1, 60000) == 1);
        CHECK(gpubuf_dispatch(client) >= 0);
    }
}

static void produce_parts(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_part parts[3], many[17];
    begin(1);
    fill_parts(parts, allocate(MB), allocate(MB));
    WORKS(client, gpubuf_register_parts(client, "legacy", parts, 3, PARTS, NULL));
    check_parts(client, "legacy");
    int status = NO_ANSWER;
    WORKS(client, gpubuf_register_parts_async(client, "later", parts, 3, PARTS, NULL, on_registered,
                                              &status, NULL));
    await_answer(client, &status);
    CHECK(status == 0);
    check_parts(client, "later");
    status = NO_ANSWER;
    WORKS(client, gpubuf_register_parts_async(client, "later", parts, 3, PARTS, NULL, on_registered,
                                              &status, NULL));
    await_answer(client, &status);
    CHECK(status == GPUBUF_E_EXISTS);
    RETURNS(GPUBUF_E_INVALID, client,
            gpubuf_register_parts_async(client, "x", parts, 2, PARTS, NULL, on_registered, &status,
                                        NULL));
    begin(0);
    for (size_t i = 0; i < 17; i++)
        many[i] = (struct gpubuf_part){(void *)(uintptr_t)map_one(0), 1024};
    CUdeviceptr elsewhere = allocate(MB);
    begin(1);
    struct gpubuf_part own[3];
    fill_parts(own, map_one(1), map_one(1));
    uint64_t before = count_fds();
    WORKS(client, gpubuf_register_parts(client, "vmm", own, 3, PARTS, NULL));
    RETURNS(GPUBUF_E_EXISTS, client, gpubuf_register_parts(client, "vmm", own, 3, PARTS, NULL));
    struct gpubuf_part mixed[] = {parts[0], own[1], own[2]};
    RETURNS(GPUBUF_E_UNSUPPORTED, client,
            gpubuf_register_parts(client, "x", mixed, 3, PARTS, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "another kind"));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_register_parts(client, "x", own, 2, PARTS, NULL));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_register_parts(client, "x", own, 0, PARTS, NULL));
    own[2].bytes--;
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_register_parts(client, "x", own, 3, PARTS, NULL));
    mixed[0] = (struct gpubuf_part){(void *)(uintptr_t)elsewhere, 1024};
    mixed[1] = parts[1];
    mixed[2] = parts[2];
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_register_parts(client, "x", mixed, 3, PARTS, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "those before it"));
    RETURNS(GPUBUF_E_LIMIT, client, gpubuf_register_parts(client, "x", many, 17, PARTS, NULL));
    CHECK(count_fds() <= before + 2);
    step(socket);
    await(socket);
}

static void consume_parts(int socket)
{
    CLIENT *client = new_client();
    check_parts(client, "legacy");
    check_parts(client, "vmm");
}

GPU_TEST(test_parts)
{
    struct child producer = start_gpu(produce_parts);
    await(producer.socket);
    run_gpu(consume_parts);
    step(producer.socket);
    ends_well(producer);
    CLIENT *client = connect_client();
    ok(client, gpubuf_delete(client, "vmm"));
}

/* ---- refused ---- */

static void refused(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUdeviceptr pointer = allocate(MB);
    RETURNS(GPUBUF_E_UNSUPPORTED, client,
            gpubuf_register_device(client, "x", (void *)(uintptr_t)pointer, 2048, FLOATS, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "managed") ||
          strstr(gpubuf_errmsg(client), "stream-ordered"));
    CHECK(strstr(gpubuf_errmsg(client), "gpubuf_put"));
}

GPU_TEST(test_refused)
{
    setenv("FAKECUDA_POINTER", "8:1", 1); /* managed */
    run_gpu(refused);
    setenv("FAKECUDA_POINTER", "17:1,10:0", 1); /* of a pool, without a legacy handle */
    run_gpu(refused);
}

/* A producer that lies about how much there is. */
static void lie(int socket)
{
    begin(0);
    CUipcMemHandle handle;
    CUdeviceptr pointer = allocate(MB);
    OK(cu->cuIpcGetMemHandle(&handle, pointer));
    tell(socket, &handle, sizeof(handle));
    await(socket);
}

static void open_lie(int socket)
{
    struct gpubuf_client *client = new_client();
    struct gpubuf_object *object = NULL;
    RETURNS(GPUBUF_E_DEVICE, client, gpubuf_open(client, "lie", NULL, &object));
    CHECK(!object && strstr(gpubuf_errmsg(client), "bytes"));
    put_pattern(client, "goes on", 100, "host");
    gpubuf_disconnect(client);
    CHECK(driver_calls("cuIpcOpenMemHandle") == driver_calls("cuIpcCloseMemHandle"));
    CHECK(driver_calls("cuDevicePrimaryCtxRetain") == driver_calls("cuDevicePrimaryCtxRelease"));
}

static void send_line(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

GPU_TEST(test_lie)
{
    struct child liar = start_gpu(lie);
    unsigned char handle[64];
    char base64[89] = "", line[1024], answer[65536];
    hear(liar.socket, handle, sizeof(handle));
    base64[gb_base64_encode(handle, sizeof(handle), base64)] = '\0';
    snprintf(line, sizeof(line),
             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"register\",\"params\":{\"name\":\"lie\","
             "\"device\":\"cuda:0\",\"layout\":{\"kind\":\"bytes\",\"bytes\":4194304,\"data\":"
             "{\"handle\":0,\"offset\":0,\"bytes\":4194304}},\"handles\":[{\"kind\":\"cuda_ipc\","
             "\"ipc\":\"%s\",\"bytes\":4194304,\"device\":\"%s\"}]}}\n",
             base64, GPU0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, daemon_socket());
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    send_line(fd, line);
    assert_true(fake_read(fd, answer, sizeof(answer)));
    assert_non_null(strstr(answer, "\"version\""));
    run_gpu(open_lie);
    close(fd);
    step(liar.socket);
    ends_well(liar);
}

RUN_GPU_TESTS
