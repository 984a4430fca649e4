/* Views on GPUs: kernels go on reading at one address while what is there changes. */
#include "gpu.h"

#define BYTES (3 * MB + 1000)

static void put_filled(struct gpubuf_client *client, const char *name, int value, const char *label)
{
    struct gpubuf_create_options options = on_gpu(TEST_KIND ":0");
    unsigned char *data = malloc(BYTES);
    CHECK(data);
    memset(data, value, BYTES);
    options.own = true;
    options.keep = 2;
    options.label = label;
    WORKS(client, gpubuf_put_bytes(client, name, data, BYTES, &options));
    free(data);
}

static struct gpubuf_open_options labeled(const char *label)
{
    return (struct gpubuf_open_options){.size = sizeof(struct gpubuf_open_options), .label = label};
}

/* All bytes at the address are `value`: by a kernel, on a stream. */
static bool shows(CUdeviceptr at, int value, CUstream stream)
{
    uint64_t sum = 0;
    OK(kernel_sum(at, BYTES, &sum, stream));
    OK(cu->cuStreamSynchronize(stream));
    return sum == (uint64_t)value * BYTES;
}

static void *open_gate(void *gate)
{
    usleep(20000); /* the switch waits by then, or it finds the work done: both are right */
    let_go(gate);
    return NULL;
}

GPU_TEST_IN_CHILD(test_switch_under_kernels)
{
    CLIENT *client = new_client();
    struct gpubuf_view *view = NULL;
    put_filled(client, "policy", 1, "1");
    put_filled(client, "policy", 2, "2");
    begin(0);
    CUstream stream = new_stream();
    void *const streams[] = {stream};
    WORKS(client, gpubuf_follow(client, "policy", NULL, &view));
    struct gpubuf_object *object = gpubuf_view_object(view);
    CUdeviceptr at = address_of(object, GPUBUF_DATA);
    CHECK(shows(at, 2, stream));
    for (int i = 0; i < 50; i++) {
        const struct gpubuf_open_options options = labeled(i % 2 ? "2" : "1");
        WORKS(client, gpubuf_switch(view, &options, streams, i % 3 ? 1 : 0));
        CHECK(address_of(object, GPUBUF_DATA) == at && shows(at, i % 2 + 1, stream));
    }
    /* Work under way is waited for: by name, or as one of all. */
    for (size_t named = 0; named < 2; named++) {
        static int gate;
        uint64_t sum = 0;
        gate = 0;
        const struct gpubuf_open_options options = labeled(named ? "2" : "1");
        const int value = *gpubuf_label(object) - '0';
        OK(hold_stream(&gate, stream));
        OK(kernel_sum(at, BYTES, &sum, stream));
        pthread_t opener;
        CHECK(pthread_create(&opener, NULL, open_gate, &gate) == 0);
        WORKS(client, gpubuf_switch(view, &options, streams, named));
        CHECK(pthread_join(opener, NULL) == 0);
        CHECK(sum == (uint64_t)value * BYTES);
    }
    gpubuf_unfollow(view);
    WORKS(client, gpubuf_delete(client, "policy"));
}

GPU_TEST_IN_CHILD(test_refused)
{
    CLIENT *client = new_client();
    struct gpubuf_create_options options = on_gpu(TEST_KIND ":0");
    struct gpubuf_view *view = NULL, *none = NULL;
    put_filled(client, "policy", 1, "1");
    WORKS(client, gpubuf_follow(client, "policy", NULL, &view));
    CUdeviceptr at = address_of(gpubuf_view_object(view), GPUBUF_DATA);
    /* On another device, on the host, and of cudaMalloc. */
    static const char *const devices[] = {TEST_KIND ":1", "host", TEST_KIND ":0"};
    unsigned char *data = calloc(1, BYTES);
    CHECK(data);
    options.own = true;
    for (int i = 0; i < 3; i++) {
        options.device = devices[i];
        options.share = i == 2 ? "ipc" : NULL;
        WORKS(client, gpubuf_put_bytes(client, "policy", data, BYTES, &options));
        RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_switch(view, NULL, NULL, 0));
    }
    RETURNS(GPUBUF_E_UNSUPPORTED, client, gpubuf_follow(client, "policy", NULL, &none));
    free(data);
    begin(0);
    CUstream stream = new_stream();
    CHECK(!none && shows(at, 1, stream));
    gpubuf_unfollow(view);
    WORKS(client, gpubuf_delete(client, "policy"));
}

static void park(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_view *view = NULL;
    put_filled(client, "policy", 3, "3");
    WORKS(client, gpubuf_follow(client, "policy", NULL, &view));
    CUdeviceptr at = address_of(gpubuf_view_object(view), GPUBUF_DATA);
    begin(0);
    CUstream stream = new_stream();
    WORKS(client, gpubuf_park(view, NULL, 0));
    WORKS(client, gpubuf_resume(view, 0));
    CHECK(shows(at, 3, stream));
    gpubuf_unfollow(view);
    WORKS(client, gpubuf_delete(client, "policy"));
}

/* That ends the context, and here the process. */
static void read_parked(int socket)
{
    struct gpubuf_client *client = new_client();
    struct gpubuf_view *view = NULL;
    uint64_t sum;
    put_filled(client, "policy", 3, "3");
    WORKS(client, gpubuf_follow(client, "policy", NULL, &view));
    CUdeviceptr at = address_of(gpubuf_view_object(view), GPUBUF_DATA);
    begin(0);
    CUstream stream = new_stream();
    WORKS(client, gpubuf_park(view, NULL, 0));
    CHECK(kernel_sum(at, BYTES, &sum, stream) != CUDA_SUCCESS ||
          cu->cuStreamSynchronize(stream) != CUDA_SUCCESS);
    _exit(0);
}

GPU_TEST(test_park)
{
    run_gpu(park);
    ends_well(start(read_parked));
}

RUN_GPU_TESTS
