/* Order between processes without blocking: seals behind work under way, releases likewise. */
#include "gpu.h"

enum { BYTES = 65536 };

/* ---- a producer whose work is held up ---- */

static int gate; /* of the producer's stream */

/* Seals behind work that does not end before the gate opens. */
static struct gpubuf_object *seal_behind_work(struct gpubuf_client *client, const char *name,
                                              CUstream stream)
{
    struct gpubuf_object *object = create_bytes(client, name, BYTES, "cuda:0");
    CUdeviceptr address = address_of(object, GPUBUF_DATA);
    OK(kernel_fill(address, 1, BYTES, stream));
    OK(cu->cuStreamSynchronize(stream));
    OK(hold_stream(&gate, stream));
    OK(kernel_fill(address, 2, BYTES, stream));
    WORKS(client, gpubuf_seal_on(object, NULL, stream));
    return object;
}

static void produce(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_object *object = seal_behind_work(client, "late", new_stream());
    CHECK(gpubuf_object_version(object) > 0 && !is_settled(client, "late"));
    step(socket);
    await(socket);
    let_go(&gate);
    /* Settled without any call of this program's. */
    step(socket);
    await(socket);
    gpubuf_release(object);
}

static uint64_t sum_of(CUdeviceptr address, CUstream stream)
{
    uint64_t sum = 0;
    OK(kernel_sum(address, BYTES, &sum, stream));
    OK(cu->cuStreamSynchronize(stream));
    return sum;
}

/* Without waiting one reads what was there before; with it, what there is to be. */
static void consume(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = open_object(client, "late"), *view = NULL;
    CUdeviceptr address = address_of(object, GPUBUF_DATA);
    CHECK(sum_of(address, stream) == BYTES);

    double start_time = now();
    WORKS(client, gpubuf_slice(object, 0, 10, &view));
    WORKS(client, gpubuf_wait_ready(view, stream)); /* a view waits for the whole */
    uint64_t sum = 0;
    OK(kernel_sum(address, BYTES, &sum, stream));
    CHECK(now() - start_time < 5 && cu->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    step(socket);
    OK(cu->cuStreamSynchronize(stream));
    CHECK(sum == 2 * BYTES);

    WORKS(client, gpubuf_wait_ready(object, NULL));
    /* From now on it costs nothing. */
    uint64_t before = all_driver_calls();
    WORKS(client, gpubuf_wait_ready(object, NULL));
    WORKS(client, gpubuf_wait_ready(object, stream));
    CHECK(all_driver_calls() == before);
    UNTIL(client, is_settled(client, "late"));
    gpubuf_release(view);
    gpubuf_release(object);
    /* Opened when settled there is nothing to wait for. */
    object = open_object(client, "late");
    before = driver_calls("cuIpcOpenEventHandle");
    WORKS(client, gpubuf_wait_ready(object, NULL));
    CHECK(before == 1 && driver_calls("cuIpcOpenEventHandle") == 1);
    gpubuf_release(object);
}

/* Runs a consumer beside a producer whose gate opens when the consumer waits. */
static void run_beside_producer(void (*consumes)(int socket))
{
    gate = 0;
    struct child producer = start_gpu(produce);
    await(producer.socket);
    struct child consumer = start_gpu(consumes);
    await(consumer.socket);
    step(producer.socket);
    await(producer.socket);
    ends_well(consumer);
    step(producer.socket);
    ends_well(producer);
}

GPU_TEST(test_seal_on)
{
    run_beside_producer(consume);
}

/* The calling thread waits, and the Arrow export brings the event. */
static void consume_on_cpu(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_object *object = open_object(client, "late");
    struct ArrowDeviceArray array;
    WORKS(client, gpubuf_export_arrow_device(object, NULL, &array));
    CHECK(array.sync_event && array.device_type == ARROW_DEVICE_CUDA);
    GIVES(CUDA_ERROR_NOT_READY, cu->cuEventQuery(*(CUevent *)array.sync_event));
    struct ArrowDeviceArray moved = array;
    step(socket);
    WORKS(client, gpubuf_wait_ready(object, NULL));
    unsigned char last;
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, BYTES - 1, &last, 1, NULL));
    CHECK(last == 2);
    OK(cu->cuEventQuery(*(CUevent *)moved.sync_event));
    gpubuf_release(object);
    moved.array.release(&moved.array);
    object = open_object(client, "late");
    WORKS(client, gpubuf_wait_ready(object, NULL));
    WORKS(client, gpubuf_export_arrow_device(object, NULL, &array));
    CHECK(!array.sync_event);
    array.array.release(&array.array);
    gpubuf_release(object);
}

GPU_TEST(test_wait_on_cpu)
{
    run_beside_producer(consume_on_cpu);
}

/* ---- in one process ---- */

GPU_TEST_IN_CHILD(test_same_process)
{
    struct gpubuf_client *client = new_client(), *other = new_client();
    begin(0);
    CUstream stream = new_stream(), reader = new_stream();
    gate = 0;
    struct gpubuf_object *mine = seal_behind_work(client, "late", stream);
    struct gpubuf_object *theirs = open_object(other, "late");
    WORKS(other, gpubuf_wait_ready(theirs, reader));
    uint64_t sum = 0;
    OK(kernel_sum(address_of(theirs, GPUBUF_DATA), BYTES, &sum, reader));
    CHECK(driver_calls("cuIpcOpenEventHandle") == 0);
    RETURNS(GPUBUF_E_BUSY, client, gpubuf_seal_on(mine, NULL, stream));
    let_go(&gate);
    WORKS(client, gpubuf_wait_ready(mine, NULL)); /* and with that it is settled */
    CHECK(is_settled(client, "late"));
    OK(cu->cuStreamSynchronize(reader));
    CHECK(sum == 2 * BYTES);
    gpubuf_release(theirs);
    gpubuf_release(mine);
    gpubuf_disconnect(other);
    gpubuf_disconnect(client);
    /* Neither events nor the context are kept by the library: what is left is the test's. */
    CHECK(driver_calls("cuEventCreate") == driver_calls("cuEventDestroy"));
    CHECK(driver_calls("cuDevicePrimaryCtxRetain") ==
          driver_calls("cuDevicePrimaryCtxRelease") + 1);
}

/* Past the bound the oldest is waited for; events are used again. */
static void many_seals(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "seal/%d", i);
        struct gpubuf_object *object = create_bytes(client, name, 256, "cuda:0");
        OK(kernel_fill(address_of(object, GPUBUF_DATA), (unsigned char)i, 256, stream));
        WORKS(client, gpubuf_seal_on(object, NULL, stream));
        gpubuf_release(object);
    }
    CHECK(driver_calls("cuEventCreate") <= 256);
    for (int i = 0; i < 600; i += 37) {
        snprintf(name, sizeof(name), "seal/%d", i);
        UNTIL(client, is_settled(client, name));
        struct gpubuf_object *object = open_object(client, name);
        unsigned char byte;
        WORKS(client, gpubuf_read(object, GPUBUF_DATA, 255, &byte, 1, NULL));
        CHECK(byte == (unsigned char)i);
        gpubuf_release(object);
    }
}

static void *open_later(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    let_go(arg);
    return NULL;
}

static void too_many_seals(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    gate = 0;
    OK(hold_stream(&gate, stream));
    char name[32];
    struct gpubuf_object *object = NULL;
    for (int i = 0; i < 257; i++) {
        snprintf(name, sizeof(name), "seal/%d", i);
        object = create_bytes(client, name, 256, "cuda:0");
        pthread_t thread;
        bool full = i == 256; /* then the oldest has to end first */
        if (full)
            CHECK(pthread_create(&thread, NULL, open_later, &gate) == 0);
        WORKS(client, gpubuf_seal_on(object, NULL, stream));
        CHECK(full == (__atomic_load_n(&gate, __ATOMIC_ACQUIRE) != 0));
        if (full)
            CHECK(pthread_join(thread, NULL) == 0);
        gpubuf_release(object);
    }
    CHECK(driver_calls("cuEventCreate") <= 258);
    UNTIL(client, is_settled(client, "seal/256"));
}

GPU_TEST(test_bounds_of_seals)
{
    run_gpu(many_seals);
    run_gpu(too_many_seals);
}

/* ---- a producer that ends too early ---- */

static void produce_and_stay(int socket)
{
    struct gpubuf_client *client = new_client();
    begin(0);
    gate = 0;
    seal_behind_work(client, "late", new_stream());
    stay(socket);
}

/* Whoever waits is told, however it waits, and does not wait for ever. */
static void wait_in_vain(int socket)
{
    struct gpubuf_client *client = new_client();
    begin(0);
    struct gpubuf_object *object = open_object(client, "late");
    CUstream stream = new_stream();
    step(socket);
    RETURNS(GPUBUF_E_STALE, client, gpubuf_wait_ready(object, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "late"));
    RETURNS(GPUBUF_E_STALE, client, gpubuf_wait_ready(object, stream));
    OK(cu->cuStreamQuery(stream)); /* it was not made to wait */
    struct gpubuf_object *again = NULL;
    RETURNS(GPUBUF_E_NOT_FOUND, client, gpubuf_open(client, "late", NULL, &again));
    gpubuf_release(object);
    stay(socket);
}

GPU_TEST(test_killed_producer)
{
    struct child producer = start_gpu(produce_and_stay);
    await(producer.socket);
    struct child consumer = start_gpu(wait_in_vain);
    await(consumer.socket);
    kill_child(producer);
    await(consumer.socket);
    kill_child(consumer); /* its driver would hang, as the real one does */
}

/* One that was done, and went before anybody opened its event. */
static void produce_and_go(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    gate = 0;
    struct gpubuf_object *object = seal_behind_work(client, "late", new_stream());
    step(socket);
    await(socket);
    let_go(&gate);
    WORKS(client, gpubuf_wait_ready(object, NULL));
    gpubuf_release(object);
}

static void open_before_wait_after(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_object *object = open_object(client, "late");
    step(socket);
    await(socket);
    WORKS(client, gpubuf_wait_ready(object, NULL));
    CHECK(sum_of(address_of(object, GPUBUF_DATA), NULL) == 2 * BYTES);
    gpubuf_release(object);
}

GPU_TEST(test_producer_gone_when_done)
{
    struct child producer = start_gpu(produce_and_go);
    await(producer.socket);
    struct child consumer = start_gpu(open_before_wait_after);
    await(consumer.socket);
    step(producer.socket);
    ends_well(producer);
    step(consumer.socket);
    ends_well(consumer);
}

/* Work that comes to grief is never settled: the object goes with its producer. */
static void produce_in_vain(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = create_bytes(client, "broken", BYTES, "cuda:0");
    OK(kernel_fill(0x1000, 1, 1, stream));
    int r = gpubuf_seal_on(object, NULL, stream);
    CHECK(r == 0 || r == GPUBUF_E_DEVICE);
    if (r == 0) {
        RETURNS(GPUBUF_E_DEVICE, client, gpubuf_wait_ready(object, NULL));
        CHECK(!is_settled(client, "broken"));
    }
    gpubuf_release(object);
}

GPU_TEST(test_work_that_fails)
{
    run_gpu(produce_in_vain);
    CLIENT *client = connect_client();
    assert_int_equal(leases_of(client, "broken"), -1);
}

/* ---- releases behind work ---- */

static void publish(int socket)
{
    CLIENT *client = new_client();
    put_pattern(client, "read", BYTES, "cuda:0");
}

/* Memory that is unmapped under a kernel takes the context along. */
static void release_too_early(int socket)
{
    CLIENT *client = client_with_cache(1);
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = open_object(client, "read");
    uint64_t sum = 0;
    gate = 0;
    OK(hold_stream(&gate, stream));
    OK(kernel_sum(address_of(object, GPUBUF_DATA), BYTES, &sum, stream));
    gpubuf_release(object);
    let_go(&gate);
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuStreamSynchronize(stream));
}

static void release_behind(int socket)
{
    struct gpubuf_client *client = client_with_cache(1);
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = open_object(client, "read");
    uint64_t sum = 0;
    gate = 0;
    OK(hold_stream(&gate, stream));
    OK(kernel_sum(address_of(object, GPUBUF_DATA), BYTES, &sum, stream));
    WORKS(client, gpubuf_release_on(object, stream));
    CHECK(leases_of(client, "read") == 1 && driver_calls("cuMemUnmap") == 0);
    let_go(&gate);
    OK(cu->cuStreamSynchronize(stream));
    uint64_t expected = 0;
    for (size_t i = 0; i < BYTES; i++)
        expected += PATTERN(i);
    CHECK(sum == expected);
    UNTIL(client, leases_of(client, "read") == 0 && driver_calls("cuMemUnmap") == 1);

    /* With nothing called at all. */
    object = open_object(client, "read");
    WORKS(client, gpubuf_release_on(object, stream));
    double until = now() + 60;
    while (driver_calls("cuMemUnmap") < 2 && now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(driver_calls("cuMemUnmap") == 2);

    /* Disconnecting waits for what is under way. */
    object = open_object(client, "read");
    gate = 0;
    OK(hold_stream(&gate, stream));
    OK(kernel_sum(address_of(object, GPUBUF_DATA), BYTES, &sum, stream));
    WORKS(client, gpubuf_release_on(object, stream));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, open_later, &gate) == 0);
    gpubuf_disconnect(client);
    CHECK(__atomic_load_n(&gate, __ATOMIC_ACQUIRE) && driver_calls("cuMemUnmap") == 3);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cu->cuStreamSynchronize(stream));
}

/* The last of very many has room because the oldest is waited for. */
static void release_many(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = open_object(client, "read");
    gate = 0;
    OK(hold_stream(&gate, stream));
    for (int i = 0; i < 256; i++)
        WORKS(client, gpubuf_release_on(gpubuf_retain(object), stream));
    CHECK(!gate);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, open_later, &gate) == 0);
    WORKS(client, gpubuf_release_on(gpubuf_retain(object), stream));
    CHECK(__atomic_load_n(&gate, __ATOMIC_ACQUIRE));
    CHECK(pthread_join(thread, NULL) == 0);
    gpubuf_release(object);
    UNTIL(client, leases_of(client, "read") == 0);
    CHECK(driver_calls("cuEventCreate") <= 257);
    /* A stream that is none: the caller still has its reference. */
    object = open_object(client, "read");
    RETURNS(GPUBUF_E_DEVICE, client, gpubuf_release_on(object, (void *)&gate));
    gpubuf_release(object);
}

/* An object on the host has no events: the stream is waited for. */
static void host_objects(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    CUstream stream = new_stream();
    for (int i = 0; i < 2; i++) {
        struct gpubuf_object *object = create_bytes(client, "host", BYTES, "host");
        pthread_t thread;
        gate = 0;
        if (i == 1)
            WORKS(client, gpubuf_seal(object, NULL));
        OK(hold_stream(&gate, stream));
        CHECK(pthread_create(&thread, NULL, open_later, &gate) == 0);
        WORKS(client,
              i == 0 ? gpubuf_seal_on(object, NULL, stream) : gpubuf_release_on(object, stream));
        CHECK(__atomic_load_n(&gate, __ATOMIC_ACQUIRE));
        CHECK(pthread_join(thread, NULL) == 0);
        if (i == 0)
            WORKS(client, gpubuf_wait_ready(object, stream));
        if (i == 0)
            gpubuf_release(object);
    }
    CHECK(leases_of(client, "host") == 0 && driver_calls("cuEventCreate") == 0);
}

GPU_TEST(test_release_on)
{
    run_gpu(host_objects);
    run_gpu(publish);
    run_gpu(release_too_early);
    run_gpu(release_behind);
    run_gpu(release_many);
}

RUN_GPU_TESTS
