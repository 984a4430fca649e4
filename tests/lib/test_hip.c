/* Objects on GPUs of HIP: where the library works otherwise than with CUDA, and views. */
#define TEST_HIP
#include "gpu.h"

/* ---- whole ways ---- */

GPU_TEST_IN_CHILD(test_put_and_copy)
{
    enum { BYTES = 5 << 20 };
    CLIENT *client = new_client();
    put_pattern(client, "zero", BYTES, "hip:0");
    put_pattern(client, "one", BYTES, GPU1);
    struct gpubuf_object *zero = open_object(client, "zero"), *one = open_object(client, "one");
    CHECK(!strcmp(gpubuf_device(zero), GPU0) && gpubuf_device_ordinal(zero) == 0);
    CHECK(!strcmp(gpubuf_device(one), GPU1) && gpubuf_device_ordinal(one) == 1);
    CHECK(object_has_pattern(client, zero) && object_has_pattern(client, one));

    /* From GPU to GPU; the thread's current device is what it was. */
    int current = -1;
    begin(1);
    struct gpubuf_object *copy = create_bytes(client, "copy", BYTES, "hip:1");
    WORKS(client, gpubuf_read(zero, GPUBUF_DATA, 0,
                              (void *)(uintptr_t)address_of(copy, GPUBUF_DATA), BYTES, NULL));
    OK(cu->cuCtxGetDevice(&current));
    CHECK(current == 1);
    CHECK(object_has_pattern(client, copy));

    struct ArrowDeviceArray array;
    WORKS(client, gpubuf_export_arrow_device(one, NULL, &array));
    CHECK(array.device_type == ARROW_DEVICE_ROCM && array.device_id == 1);
    array.array.release(&array.array);
    gpubuf_release(copy);
    gpubuf_release(one);
    gpubuf_release(zero);
}

/* ---- a stream is waited for, since HIP's events are not shared ---- */

static void write_late(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = create_bytes(client, "late", MB, "hip:0");
    begin(0);
    CUstream stream = new_stream();
    OK(kernel_fill(address_of(object, GPUBUF_DATA), 7, MB, stream));
    WORKS(client, gpubuf_seal_on(object, NULL, stream));
    OK(cu->cuStreamQuery(stream));
    CHECK(driver_calls("cuIpcGetEventHandle") == 0 && is_settled(client, "late"));
    step(socket);
    await(socket);
    gpubuf_release(object);
}

static void read_late(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = open_object(client, "late");
    uint64_t sum = 0;
    begin(0);
    CUstream stream = new_stream();
    WORKS(client, gpubuf_wait_ready(object, stream));
    OK(kernel_sum(address_of(object, GPUBUF_DATA), MB, &sum, stream));
    WORKS(client, gpubuf_release_on(object, stream));
    OK(cu->cuStreamSynchronize(stream));
    CHECK(sum == 7 * MB);
}

GPU_TEST(test_seal_on)
{
    setenv("FAKECUDA_STREAM_DELAY", "30", 1);
    struct child writer = start_gpu(write_late);
    await(writer.socket);
    run_gpu(read_late);
    step(writer.socket);
    ends_well(writer);
}

/* ---- memory of one's own ---- */

static const char floats[] = "{\"kind\":\"array\",\"dtype\":\"float32\",\"shape\":[512],"
                             "\"data\":{\"handle\":0,\"offset\":0,\"bytes\":2048}}";

static void share_own(int socket)
{
    CLIENT *client = new_client();
    CUdeviceptr pointer;
    begin(1);
    OK(cu->cuMemAlloc(&pointer, 4096));
    OK(kernel_fill(pointer, 3, 4096, NULL));
    WORKS(client,
          gpubuf_register_device(client, "mine", (void *)(uintptr_t)pointer, 2048, floats, NULL));
    /* Memory of hipMemMap: a copy must do. */
    put_pattern(client, "given", 4096, "hip:0");
    struct gpubuf_object *given = open_object(client, "given");
    RETURNS(GPUBUF_E_UNSUPPORTED, client,
            gpubuf_register_device(client, "x", (void *)(uintptr_t)address_of(given, GPUBUF_DATA),
                                   2048, floats, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "gpubuf_put"));
    gpubuf_release(given);
    step(socket);
    await(socket);
}

static void read_own(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = open_object(client, "mine");
    unsigned char got[2048];
    CHECK(gpubuf_device_ordinal(object) == 1);
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, got, sizeof(got), NULL));
    CHECK(got[0] == 3 && got[2047] == 3);
    gpubuf_release(object);
}

GPU_TEST(test_share_own)
{
    struct child owner = start_gpu(share_own);
    await(owner.socket);
    run_gpu(read_own);
    step(owner.socket);
    ends_well(owner);
}

/* ---- what is not there ---- */

static void hidden(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = NULL;
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_open(client, "on one", NULL, &object));
    CHECK(strstr(gpubuf_errmsg(client), GPU1) &&
          strstr(gpubuf_errmsg(client), "HIP_VISIBLE_DEVICES=0"));
}

static void put_on_one(int socket)
{
    CLIENT *client = new_client();
    put_pattern(client, "on one", 100, "hip:1");
}

GPU_TEST(test_hidden)
{
    run_gpu(put_on_one);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1); /* which the fake driver reads */
    setenv("HIP_VISIBLE_DEVICES", "0", 1);
    run_gpu(hidden);
    unsetenv("HIP_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

#include "test_gpu_views.c"
