/* Objects on GPUs: memory, copies, what is mapped when, and what is not allowed. */
#include <stdatomic.h>

#include "gpu.h"

/* ---- what is put can be read, by whatever way ---- */

GPU_TEST_IN_CHILD(test_put_everything)
{
    CLIENT *client = new_client();
    struct gpubuf_create_options options = on_gpu("cuda:0");
    put_pattern(client, "bytes", 3 * MB + 5, "cuda:0");
    struct gpubuf_object *object = open_object(client, "bytes");
    CHECK(!strcmp(gpubuf_device(object), GPU0) && gpubuf_device_ordinal(object) == 0);
    CHECK(object_has_pattern(client, object));
    gpubuf_release(object);

    /* A transposed array of shorts, from the host and from a device, in C order afterwards. */
    uint16_t host_data[7][11], got[11][7];
    for (unsigned i = 0; i < 77; i++)
        host_data[i / 11][i % 11] = (uint16_t)(i * 513);
    const uint64_t shape[] = {11, 7};
    const int64_t strides[] = {2, 22};
    begin(1);
    CUdeviceptr device_data;
    OK(cu->cuMemAlloc(&device_data, sizeof(host_data)));
    OK(cu->cuMemcpyHtoD(device_data, host_data, sizeof(host_data)));
    const void *sources[] = {host_data, (const void *)(uintptr_t)device_data};
    const char *devices[] = {"cuda:0", "cuda:1", "host"};
    for (int k = 0; k < 6; k++) {
        options.device = devices[k / 2];
        WORKS(client, gpubuf_put_array(client, "array", "uint16", 2, shape, strides, sources[k % 2],
                                       &options));
        object = open_object(client, "array");
        memset(got, 0, sizeof(got));
        WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, got, sizeof(got), NULL));
        for (unsigned i = 0; i < 77; i++)
            CHECK(got[i % 11][i / 11] == host_data[i / 11][i % 11]);
        CHECK(gpubuf_device_ordinal(object) == (k / 2 == 2 ? -1 : k / 2));
        gpubuf_release(object);
    }
    /* Bytes of a device into an object of the host, and of its own device. */
    for (int k = 0; k < 3; k++) {
        options.device = devices[k];
        WORKS(client, gpubuf_put_bytes(client, "raw", sources[1], sizeof(host_data), &options));
        object = open_object(client, "raw");
        WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, got, sizeof(got), NULL));
        CHECK(!memcmp(got, host_data, sizeof(got)));
        gpubuf_release(object);
    }
    const char *texts[] = {"of", NULL, "a column"};
    const bool bits[] = {false, true, true};
    const struct gpubuf_values plain[] = {{"text", "utf8", texts, NULL},
                                          {"bit", "bool", bits, bits}};
    options.device = "cuda:0";
    WORKS(client, gpubuf_put_table(client, "plain", plain, 2, 3, &options));
    struct gpubuf_object *table = open_object(client, "plain");
    char characters[10];
    int32_t offsets[4];
    unsigned char bit[2];
    WORKS(client, gpubuf_column(table, "text", &object));
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, characters, 10, NULL));
    WORKS(client, gpubuf_read(object, GPUBUF_OFFSETS, 0, offsets, sizeof(offsets), NULL));
    WORKS(client, gpubuf_read(object, GPUBUF_MASK, 0, bit, 1, NULL));
    CHECK(!memcmp(characters, "ofa column", 10) && offsets[1] == 2 && offsets[2] == 2 &&
          offsets[3] == 10);
    CHECK(bit[0] == 5 && gpubuf_null_count(object) == 1 && !gpubuf_string_at(object, 0, NULL));
    gpubuf_release(object);
    WORKS(client, gpubuf_column(table, "bit", &object));
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, bit, 1, NULL));
    WORKS(client, gpubuf_read(object, GPUBUF_MASK, 0, bit + 1, 1, NULL));
    CHECK(bit[0] == 6 && bit[1] == 6);
    gpubuf_release(object);
    gpubuf_release(table);
}

/* ---- host memory that is pinned ---- */

static bool is_registered(const struct gpubuf_object *object)
{
    CUdeviceptr address = address_of(object, GPUBUF_DATA);
    unsigned type = 0;

    return cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_HOST;
}

GPU_TEST_IN_CHILD(test_pinned_memory)
{
    CLIENT *client = new_client();
    put_pattern(client, "pinned", 3 * MB, "host");
    put_pattern(client, "on a GPU", 1000, "cuda:0");
    begin(1);
    struct gpubuf_object *object = open_object(client, "pinned"), *view = NULL;
    CHECK(!is_registered(object));
    WORKS(client, gpubuf_pin_memory(object)); /* a reader's memory, which is read-only */
    WORKS(client, gpubuf_pin_memory(object));
    CHECK(is_registered(object) && driver_calls("cuMemHostRegister") == 1);
    struct gpubuf_pinned_memory figures = {.size = sizeof(figures)};
    CHECK(gpubuf_pinned_memory(&figures) == 0 && figures.objects >= 3 * MB);
    CHECK(figures.buffers <= figures.buffers_max && figures.refused == 0);
    CHECK(gpubuf_pinned_memory(NULL) == GPUBUF_E_INVALID);
    WORKS(client, gpubuf_slice(object, 10, 100, &view));
    WORKS(client, gpubuf_pin_memory(view));
    gpubuf_release(object);
    CHECK(is_registered(view));

    /* Its copies are queued, and wait for nothing. */
    int gate = 0;
    CUstream stream = new_stream();
    CUdeviceptr target;
    unsigned char got[100];
    OK(cu->cuMemAlloc(&target, sizeof(got)));
    OK(hold_stream(&gate, stream));
    WORKS(client, gpubuf_read(view, GPUBUF_DATA, 0, (void *)(uintptr_t)target, 100, stream));
    let_go(&gate);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuMemcpyDtoH(got, target, sizeof(got)));
    for (unsigned i = 0; i < sizeof(got); i++)
        CHECK(got[i] == PATTERN(i + 10));

    struct gpubuf_object *on_gpu = open_object(client, "on a GPU");
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_pin_memory(on_gpu));
    gpubuf_release(on_gpu);
    gpubuf_release(view);
    CHECK(driver_calls("cuMemHostUnregister") == 1);

    /* A writer's memory, which is guarded by the seal. */
    object = create_bytes(client, "written", 2 * MB, "host");
    WORKS(client, gpubuf_pin_memory(object));
    CHECK(is_registered(object));
    WORKS(client, gpubuf_seal(object, NULL));
    CHECK(is_registered(object));
    gpubuf_release(object);
    CHECK(driver_calls("cuMemHostUnregister") == 2);
    CHECK(gpubuf_pinned_memory(&figures) == 0 && figures.objects == 0);
}

/* ---- columns, masks, slices, Arrow ---- */

enum { ROWS = 1000 };

static void make_column(struct gpubuf_client *client)
{
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_COLUMN,
        .column =
            {.dtype = "utf8", .length = ROWS, .mask = true, .null_count = -1, .data_bytes = ROWS},
    };
    struct gpubuf_create_options options = on_gpu("cuda:0");
    struct gpubuf_object *column = NULL;
    WORKS(client, gpubuf_create(client, "column", &layout, &options, &column));
    int32_t offsets[ROWS + 1];
    unsigned char mask[(ROWS + 7) / 8], text[ROWS];
    for (int i = 0; i <= ROWS; i++)
        offsets[i] = i;
    memset(mask, 0x55, sizeof(mask));
    for (int i = 0; i < ROWS; i++)
        text[i] = (unsigned char)('a' + i % 26);
    WORKS(client, gpubuf_write(column, GPUBUF_OFFSETS, 0, offsets, sizeof(offsets), NULL));
    WORKS(client, gpubuf_write(column, GPUBUF_MASK, 0, mask, sizeof(mask), NULL));
    WORKS(client, gpubuf_write(column, GPUBUF_DATA, 0, text, 500, NULL));
    WORKS(client, gpubuf_write(column, GPUBUF_DATA, 500, text + 500, 500, NULL));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_write(column, GPUBUF_DATA, 501, text, 500, NULL));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_write(column, GPUBUF_DATA, UINT64_MAX, text, 2, NULL));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_write(column, GPUBUF_DATA, 0, NULL, 2, NULL));
    WORKS(client, gpubuf_seal(column, (const int64_t[]){ROWS / 2}));
    RETURNS(GPUBUF_E_BUSY, client, gpubuf_write(column, GPUBUF_DATA, 0, text, 1, NULL));
    gpubuf_release(column);
}

static void produce_column(int socket)
{
    struct gpubuf_client *client = new_client();
    make_column(client);
    stay(socket);
}

static void consume_column(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *column = open_object(client, "column"), *slice = NULL;
    begin(0);
    WORKS(client, gpubuf_slice(column, 100, 50, &slice));
    CHECK(gpubuf_offset(slice) == 100 && gpubuf_length(slice) == 50 && !gpubuf_is_valid(slice, 0));
    struct gpubuf_memory memory;
    WORKS(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    CHECK(memory.bytes == ROWS && !memory.writable);

    /* A kernel reads through the mapping. */
    uint64_t sum = 0, expected = 0;
    for (int i = 100; i < 150; i++)
        expected += (uint64_t)('a' + i % 26);
    OK(kernel_sum(address_of(slice, GPUBUF_DATA) + 100, 50, &sum, NULL));
    OK(cu->cuStreamSynchronize(NULL));
    CHECK(sum == expected);
    int32_t offsets[2];
    WORKS(client, gpubuf_read(slice, GPUBUF_OFFSETS, 100 * 4, offsets, sizeof(offsets), NULL));
    CHECK(offsets[0] == 100 && offsets[1] == 101);
    unsigned char mask = 0;
    WORKS(client, gpubuf_read(slice, GPUBUF_MASK, 1, &mask, 1, NULL));
    CHECK(mask == 0x55);
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_read(slice, GPUBUF_DATA, ROWS, &mask, 1, NULL));

    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    struct ArrowDeviceArray device = {0};
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_export_arrow(slice, &schema, &array));
    CHECK(!schema.release && !array.release);
    WORKS(client, gpubuf_export_arrow_device(slice, &schema, &device));
    CHECK(device.device_type == ARROW_DEVICE_CUDA && device.device_id == 0 && !device.sync_event);
    CHECK(!strcmp(schema.format, "u") && device.array.length == 50 && device.array.offset == 100);
    CHECK((uintptr_t)device.array.buffers[2] == address_of(column, GPUBUF_DATA));
    gpubuf_release(slice);
    gpubuf_release(column);
    OK(kernel_sum((CUdeviceptr)(uintptr_t)device.array.buffers[2] + 100, 50, &sum, NULL));
    OK(cu->cuStreamSynchronize(NULL));
    CHECK(sum == expected);
    device.array.release(&device.array);
    schema.release(&schema);
    CHECK(!device.array.release);
}

/* A kernel that writes there fails in its own process, and nothing else is hurt. */
static void deface_column(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *column = open_object(client, "column");
    begin(0);
    char byte = 'X';
    RETURNS(GPUBUF_E_BUSY, client, gpubuf_write(column, GPUBUF_DATA, 0, &byte, 1, NULL));
    CUdeviceptr address = address_of(column, GPUBUF_DATA);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyHtoD(address, &byte, 1));
    OK(kernel_fill(address, 'X', 10, NULL));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuStreamSynchronize(NULL));
    RETURNS(GPUBUF_E_DEVICE, client, gpubuf_read(column, GPUBUF_DATA, 0, &byte, 1, NULL));
    CHECK(byte == 'X' && strstr(gpubuf_errmsg(client), "CUDA_ERROR_ILLEGAL_ADDRESS"));
    gpubuf_release(column);
}

GPU_TEST(test_two_processes)
{
    size_t before = free_on(0);
    struct child producer = start_gpu(produce_column);
    await(producer.socket);
    run_gpu(consume_column);
    run_gpu(deface_column);
    run_gpu(consume_column);
    kill_child(producer);
    run_gpu(consume_column); /* what was sealed outlives its writer */
    assert_true(free_on(0) + 4 * MB >= before);
}

/* ---- one pointer for writer and reader ---- */

GPU_TEST_IN_CHILD(test_same_process)
{
    struct gpubuf_client *client = new_client(), *other = new_client();
    struct gpubuf_object *mine = create_bytes(client, "mine", 100, "cuda:0");
    CUdeviceptr address = address_of(mine, GPUBUF_DATA);
    WORKS(client, gpubuf_seal(mine, NULL));
    struct gpubuf_object *again = open_object(client, "mine"), *theirs = open_object(other, "mine");
    CHECK(address_of(again, GPUBUF_DATA) == address && address_of(theirs, GPUBUF_DATA) == address);
    CHECK(driver_calls("cuMemMap") == 1 && driver_calls("cuDevicePrimaryCtxRetain") == 1);
    /* Whoever is left keeps it. */
    gpubuf_release(mine);
    gpubuf_release(again);
    gpubuf_disconnect(client);
    char byte;
    WORKS(other, gpubuf_read(theirs, GPUBUF_DATA, 99, &byte, 1, NULL));
    gpubuf_release(theirs);
    gpubuf_disconnect(other);
    CHECK(driver_calls("cuMemUnmap") == 1 && driver_calls("cuMemAddressFree") == 1);
    CHECK(driver_calls("cuMemRelease") == 1 && driver_calls("cuDevicePrimaryCtxRelease") == 1);
}

/* ---- as few calls of the driver as there are segments ---- */

enum { COLUMNS = 1000 };

static void publish_many(int socket)
{
    CLIENT *client = new_client();
    char name[32];
    for (int i = 0; i < COLUMNS; i++) {
        snprintf(name, sizeof(name), "many/%d", i);
        put_pattern(client, name, 65536, "cuda:0");
    }
}

static void open_many(int socket)
{
    static char names[COLUMNS][32];
    static const char *pointers[COLUMNS];
    static struct gpubuf_object *objects[COLUMNS];
    CLIENT *client = new_client();
    for (int i = 0; i < COLUMNS; i++) {
        snprintf(names[i], sizeof(names[i]), "many/%d", i);
        pointers[i] = names[i];
    }
    RETURNS(COLUMNS, client, gpubuf_open_many(client, pointers, COLUMNS, NULL, objects, NULL));
    uint64_t segments = driver_calls("cuMemMap");
    CHECK(segments >= 1 && segments < 20);
    CHECK(driver_calls("cuMemImportFromShareableHandle") == segments);
    CHECK(driver_calls("cuMemSetAccess") == segments);
    CHECK(driver_calls("cuDevicePrimaryCtxRetain") == 1 && driver_calls("cuInit") == 1);
    CHECK(object_has_pattern(client, objects[0]) &&
          object_has_pattern(client, objects[COLUMNS - 1]));
    gpubuf_release_many(objects, COLUMNS);
    /* Mapped segments cost nothing. */
    uint64_t before = all_driver_calls();
    RETURNS(COLUMNS, client, gpubuf_open_many(client, pointers, COLUMNS, NULL, objects, NULL));
    gpubuf_release_many(objects, COLUMNS);
    for (int i = 0; i < COLUMNS; i += 100)
        gpubuf_release(open_object(client, names[i]));
    CHECK(all_driver_calls() == before);
}

GPU_TEST(test_few_calls)
{
    run_gpu(publish_many);
    run_gpu(open_many);
}

/* ---- copies on streams ---- */

static void streams(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = create_bytes(client, "streams", MB, "cuda:0");
    CUdeviceptr scratch, target = address_of(object, GPUBUF_DATA);
    void *pinned;
    OK(cu->cuMemAlloc(&scratch, MB));
    OK(cu->cuMemHostAlloc(&pinned, MB, 0));
    memset(pinned, 1, MB);

    /* Queued: nothing happens before what is queued ahead has. */
    int gate = 0;
    unsigned char seen = 0;
    WORKS(client, gpubuf_write(object, GPUBUF_DATA, 0, pinned, MB, NULL));
    memset(pinned, 2, MB);
    OK(hold_stream(&gate, stream));
    WORKS(client, gpubuf_write(object, GPUBUF_DATA, 0, pinned, MB, stream));
    OK(kernel_fill(target, 3, 10, stream));
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, (void *)(uintptr_t)scratch, MB, stream));
    CHECK(host(target)[500] == 1);
    let_go(&gate);
    OK(cu->cuStreamSynchronize(stream));
    CHECK(host(target)[5] == 3 && host(target)[500] == 2 && host(scratch)[5] == 3);
    CHECK(host(scratch)[MB - 1] == 2);
    /* NULL waits, also for what is on the default stream. */
    gate = 0;
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 5, &seen, 1, NULL));
    CHECK(seen == 3);
    /* An object of the host: to and from a device. */
    struct gpubuf_object *on_host = create_bytes(client, "host", MB, "host");
    WORKS(client, gpubuf_write(on_host, GPUBUF_DATA, 0, (void *)(uintptr_t)scratch, MB, NULL));
    struct gpubuf_memory memory;
    WORKS(client, gpubuf_memory(on_host, GPUBUF_DATA, &memory));
    CHECK(((unsigned char *)memory.pointer)[5] == 3 &&
          ((unsigned char *)memory.pointer)[MB - 1] == 2);
    OK(kernel_fill(scratch, 0, MB, stream));
    WORKS(client, gpubuf_read(on_host, GPUBUF_DATA, 0, (void *)(uintptr_t)scratch, MB, stream));
    OK(cu->cuStreamSynchronize(stream));
    CHECK(host(scratch)[5] == 3);
    /* The caller's context is as it was. */
    CUcontext context, now_current;
    OK(cu->cuCtxGetCurrent(&context));
    OK(cu->cuCtxPopCurrent(NULL));
    struct gpubuf_object *second = create_bytes(client, "second", 10, "cuda:1");
    WORKS(client, gpubuf_write(second, GPUBUF_DATA, 0, pinned, 10, NULL));
    OK(cu->cuCtxGetCurrent(&now_current));
    CHECK(!now_current && context);
    gpubuf_release(second);
    gpubuf_release(on_host);
    gpubuf_release(object);
}

/* Between two GPUs that reach each other's memory the driver copies, on a stream too; between two
   that do not it is done at once, but on no stream. */
static void across(int socket)
{
    enum { BYTES = 9 << 20 };
    CLIENT *client = new_client();
    put_pattern(client, "from", BYTES, "cuda:0");
    struct gpubuf_object *from = open_object(client, "from");
    struct gpubuf_object *to = create_bytes(client, "to", BYTES, "cuda:1");
    void *target = (void *)(uintptr_t)address_of(to, GPUBUF_DATA);
    begin(0);
    CUstream stream = new_stream();
    if (getenv("FAKECUDA_PEER")) {
        RETURNS(GPUBUF_E_DEVICE, client, gpubuf_read(from, GPUBUF_DATA, 0, target, BYTES, stream));
        WORKS(client, gpubuf_read(from, GPUBUF_DATA, 0, target, BYTES, NULL));
    } else {
        WORKS(client, gpubuf_read(from, GPUBUF_DATA, 0, target, BYTES, stream));
        OK(cu->cuStreamSynchronize(stream));
    }
    CHECK(object_has_pattern(client, to));
    struct gpubuf_create_options options = on_gpu("cuda:0");
    WORKS(client, gpubuf_put_bytes(client, "back", target, BYTES, &options));
    struct gpubuf_object *back = open_object(client, "back");
    CHECK(object_has_pattern(client, back));
    gpubuf_release(back);
    gpubuf_release(to);
    gpubuf_release(from);
}

static void publish_two(int socket)
{
    CLIENT *client = new_client();
    put_pattern(client, "source", 9 << 20, "cuda:0");
    put_pattern(client, "sealed", 9 << 20, "cuda:1");
}

/* Memory that is mapped for reading is written by no GPU. */
static void reaching_to_write(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *from = open_object(client, "source");
    struct gpubuf_object *sealed = open_object(client, "sealed");
    void *target = (void *)(uintptr_t)address_of(sealed, GPUBUF_DATA);
    begin(0);
    RETURNS(GPUBUF_E_DEVICE, client,
            gpubuf_read(from, GPUBUF_DATA, 0, target, 9 << 20, new_stream()));
    gpubuf_release(sealed);
    gpubuf_release(from);
}

GPU_TEST(test_streams)
{
    run_gpu(streams);
    run_gpu(across);
    run_gpu(publish_two);
    run_gpu(reaching_to_write);
    setenv("FAKECUDA_PEER", "0", 1);
    run_gpu(across);
    unsetenv("FAKECUDA_PEER");
}

/* ---- what is not visible ---- */

static void publish_on_both(int socket)
{
    CLIENT *client = new_client();
    put_pattern(client, "zero", 100, "cuda:0");
    put_pattern(client, "one", 100, "cuda:1");
    put_pattern(client, "host", 100, "host");
}

static void see_one(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = NULL, *one = open_object(client, "one");
    CHECK(gpubuf_device_ordinal(one) == 0 && object_has_pattern(client, one));
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_open(client, "zero", NULL, &object));
    CHECK(!object && strstr(gpubuf_errmsg(client), GPU0) &&
          strstr(gpubuf_errmsg(client), "CUDA_VISIBLE_DEVICES=" GPU1));
    int errors[3];
    struct gpubuf_object *objects[3];
    const char *const names[] = {"one", "zero", "host"};
    RETURNS(2, client, gpubuf_open_many(client, names, 3, NULL, objects, errors));
    CHECK(objects[0] && !objects[1] && objects[2] && errors[1] == GPUBUF_E_UNSUPPORTED);
    gpubuf_release_many(objects, 3);
    struct gpubuf_create_options options = on_gpu(GPU0);
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_put_bytes(client, "new", "x", 1, &options));
    gpubuf_release(one);
}

static void see_none(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = NULL;
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_open(client, "one", NULL, &object));
    CHECK(!object && strstr(gpubuf_errmsg(client), "CUDA_VISIBLE_DEVICES"));
    object = open_object(client, "host");
    CHECK(object_has_pattern(client, object));
    gpubuf_release(object);
}

GPU_TEST(test_hidden)
{
    run_gpu(publish_on_both);
    setenv("CUDA_VISIBLE_DEVICES", GPU1, 1);
    run_gpu(see_one);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    run_gpu(see_none);
}

/* A program that has to do with host memory only never loads the driver. */
GPU_TEST(test_host_only)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gpubuf_connect_options options = {
            .size = sizeof(options), .path = daemon_socket(), .timeout_ms = 60000};
        struct gpubuf_client *client = NULL;
        WORKS(NULL, gpubuf_connect(&client, &options));
        put_pattern(client, "host", 3 * MB, "host");
        struct gpubuf_object *object = open_object(client, "host");
        CHECK(object_has_pattern(client, object) && gpubuf_device_ordinal(object) == -1);
        WORKS(client, gpubuf_wait_ready(object, NULL));
        WORKS(client, gpubuf_release_on(object, NULL));
        object = create_bytes(client, "again", 1, "host");
        WORKS(client, gpubuf_write(object, GPUBUF_DATA, 0, "x", 1, NULL));
        WORKS(client, gpubuf_seal_on(object, NULL, NULL));
        struct ArrowDeviceArray array;
        WORKS(client, gpubuf_export_arrow_device(object, NULL, &array));
        CHECK(array.device_type == ARROW_DEVICE_CPU && array.device_id == -1 && !array.sync_event);
        array.array.release(&array.array);
        gpubuf_release(object);
        gpubuf_disconnect(client);
        CHECK(!gb_cuda_is_loaded(GB_CUDA));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- memory comes back ---- */

static void open_and_let_go(int socket)
{
    CLIENT *client = client_with_cache(1);
    begin(0);
    size_t before = free_memory();
    for (int i = 0; i < 3; i++) {
        struct gpubuf_object *object = create_bytes(client, "big", 40 * MB, "cuda:0");
        WORKS(client, gpubuf_seal(object, NULL));
        gpubuf_release(object);
        WORKS(client, gpubuf_delete(client, "big"));
    }
    char *text = NULL;
    WORKS(client, gpubuf_call(client, "trim", NULL, 60000, &text));
    gpubuf_free(text);
    UNTIL(client, free_memory() == before);
}

static void hold_and_retire(int socket)
{
    CLIENT *client = new_client();
    gpubuf_release(open_object(client, "kept")); /* stays mapped */
    begin(0);
    step(socket);
    UNTIL(client, driver_calls("cuMemUnmap") == 1);
    step(socket);
    await(socket);
}

static void keep_then_delete(int socket)
{
    CLIENT *client = client_with_cache(1);
    put_pattern(client, "kept", 40 * MB, "cuda:0");
    step(socket);
    await(socket);
    WORKS(client, gpubuf_delete(client, "kept"));
    char *text = NULL;
    WORKS(client, gpubuf_call(client, "trim", NULL, 60000, &text));
    gpubuf_free(text);
    await(socket);
    begin(0);
}

GPU_TEST(test_memory_comes_back)
{
    size_t before = free_on(0);
    run_gpu(open_and_let_go);
    assert_int_equal(free_on(0), before);
    /* A reader is asked to unmap what it holds no more. */
    struct child producer = start_gpu(keep_then_delete);
    await(producer.socket);
    struct child reader = start_gpu(hold_and_retire);
    await(reader.socket);
    step(producer.socket);
    await(reader.socket);
    step(producer.socket);
    ends_well(producer);
    step(reader.socket);
    ends_well(reader);
    assert_int_equal(free_on(0), before);
}

/* ---- ends in any order ---- */

static struct gpubuf_object *left_over;
static struct gpubuf_client *left_client;

static void release_at_exit(void)
{
    gpubuf_release(left_over);
    gpubuf_disconnect(left_client);
}

static void end_in_disorder(int socket)
{
    struct gpubuf_client *client = new_client();
    struct gpubuf_object *object = open_object(client, "one");
    gpubuf_disconnect(client); /* objects may be released afterwards */
    struct gpubuf_memory memory;
    char byte;
    RETURNS(GPUBUF_E_CLOSED, client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    RETURNS(GPUBUF_E_CLOSED, client, gpubuf_read(object, GPUBUF_DATA, 0, &byte, 1, NULL));
    gpubuf_release(object);

    atexit(release_at_exit);
    left_client = new_client();
    left_over = open_object(left_client, "one");
    begin(1);
    CUstream stream = new_stream();
    WORKS(left_client, gpubuf_release_on(gpubuf_retain(left_over), stream));
    exit(0); /* with the context, and what is mapped, as they are */
}

GPU_TEST(test_ends)
{
    run_gpu(publish_on_both);
    run_gpu(end_in_disorder);
    /* The driver may be gone by then. */
    setenv("FAKECUDA_FAIL",
           "cuMemUnmap:*:4,cuMemAddressFree:*:4,cuMemRelease:*:4,"
           "cuDevicePrimaryCtxRelease:*:4,cuEventQuery:2-9:4,cuEventDestroy:*:4",
           1);
    run_gpu(end_in_disorder);
}

/* ---- threads ---- */

static struct gpubuf_client *shared_client;

static void *open_and_release(void *arg)
{
    const char *const names[] = {"zero", "one", "host"};
    for (int i = 0; i < 200; i++) {
        struct gpubuf_object *object = open_object(shared_client, names[(i + *(int *)arg) % 3]);
        if (i % 20 == 0)
            CHECK(object_has_pattern(shared_client, object));
        gpubuf_release(object);
    }
    return NULL;
}

/* With nothing kept mapped between uses, in one client and in two. */
static void threads(int socket)
{
    pthread_t running[4];
    int numbers[4];
    shared_client = client_with_cache(1);
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&running[i], NULL, open_and_release, &numbers[i]) == 0);
    }
    struct gpubuf_client *other = client_with_cache(1);
    for (int i = 0; i < 200; i++)
        gpubuf_release(open_object(other, i % 2 ? "zero" : "one"));
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(running[i], NULL) == 0);
    gpubuf_disconnect(other);
    gpubuf_disconnect(shared_client);
    CHECK(driver_calls("cuMemMap") == driver_calls("cuMemUnmap"));
    CHECK(driver_calls("cuDevicePrimaryCtxRetain") == driver_calls("cuDevicePrimaryCtxRelease"));
}

GPU_TEST(test_threads)
{
    run_gpu(publish_on_both);
    run_gpu(threads);
}

/* ---- fork ---- */

static void forks(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = open_object(client, "zero");
    struct ArrowDeviceArray array;
    WORKS(client, gpubuf_export_arrow_device(object, NULL, &array));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        uint64_t before = all_driver_calls();
        char byte;
        RETURNS(GPUBUF_E_FORKED, client, gpubuf_read(object, GPUBUF_DATA, 0, &byte, 1, NULL));
        RETURNS(GPUBUF_E_FORKED, client, gpubuf_wait_ready(object, NULL));
        array.array.release(&array.array);
        WORKS(client, gpubuf_release_on(object, GPUBUF_STREAM_LEGACY));
        gpubuf_disconnect(client);
        struct gpubuf_client *own = new_client();
        struct gpubuf_object *theirs = NULL;
        RETURNS(GPUBUF_E_UNSUPPORTED, own, gpubuf_open(own, "zero", NULL, &theirs));
        CHECK(strstr(gpubuf_errmsg(own), "fork"));
        theirs = open_object(own, "host");
        CHECK(object_has_pattern(own, theirs));
        gpubuf_release(theirs);
        put_pattern(own, "more", 100, "host");
        gpubuf_disconnect(own);
        CHECK(all_driver_calls() == before);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(object_has_pattern(client, object));
    array.array.release(&array.array);
    gpubuf_release(object);
}

GPU_TEST(test_fork)
{
    run_gpu(publish_on_both);
    run_gpu(forks);
}

/* ---- share=ipc ---- */

static void produce_ipc(int socket)
{
    struct gpubuf_client *client = new_client();
    struct gpubuf_create_options options = on_gpu("cuda:0");
    options.share = "ipc";
    WORKS(client, gpubuf_put_bytes(client, "ipc", "twelve bytes", 12, &options));
    struct gpubuf_object *object = open_object(client, "ipc");
    char text[13] = "";
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, text, 12, NULL));
    CHECK(!strcmp(text, "twelve bytes"));
    gpubuf_release(object);
    gpubuf_disconnect(client);
    CHECK(driver_calls("cuIpcOpenMemHandle") == 1 && driver_calls("cuIpcCloseMemHandle") == 1);
}

GPU_TEST(test_ipc)
{
    run_gpu(produce_ipc);
    run_gpu(produce_ipc);
}

RUN_GPU_TESTS
