/* Bundles on GPUs: the manifest comes to the host, the arrays stay where they are. */
#include "gpu.h"

static const uint64_t shape[] = {4, 128};
static const struct gpubuf_tensor_spec specs[] = {{"small", "int8", 0, NULL},
                                                  {"large", "float32", 2, shape}};

/* Creates it with an array written through its own object, the other through the bundle's
   pointer. */
static struct gpubuf_object *create_model(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_create_options options = on_gpu("cuda:0");
    struct gpubuf_layout_spec layout;
    struct gpubuf_bundle *planned, *bundle;
    struct gpubuf_object *object, *array;
    uint64_t bytes;
    float values[512];
    for (unsigned i = 0; i < 512; i++)
        values[i] = (float)i;
    WORKS(NULL, gpubuf_bundle_plan(specs, 2, NULL, &planned));
    gpubuf_bundle_layout(planned, &layout);
    const void *head = gpubuf_bundle_head(planned, &bytes);
    WORKS(client, gpubuf_create(client, name, &layout, &options, &object));
    WORKS(client, gpubuf_write(object, GPUBUF_DATA, 0, head, bytes, NULL));
    gpubuf_bundle_free(planned);
    WORKS(client, gpubuf_bundle_open(object, &bundle));
    WORKS(client, gpubuf_bundle_array(bundle, 1, &array));
    WORKS(client, gpubuf_write(array, GPUBUF_DATA, 0, values, sizeof(values), NULL));
    gpubuf_release(array);
    begin(0);
    OK(cu->cuMemcpyHtoD((CUdeviceptr)(uintptr_t)gpubuf_bundle_at(bundle, 0)->pointer, "s", 1));
    gpubuf_bundle_free(bundle);
    return object;
}

static void check(struct gpubuf_client *client, struct gpubuf_object *object)
{
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *array, *slice;
    struct gpubuf_memory memory;
    float values[128];
    char small = 0;
    WORKS(client, gpubuf_bundle_open(object, &bundle));
    const struct gpubuf_tensor *large = gpubuf_bundle_find(bundle, "large", NULL);
    CHECK(large && large->bytes == 2048 && (uintptr_t)large->pointer % 256 == 0);
    WORKS(client, gpubuf_bundle_array(bundle, 1, &array));
    WORKS(client, gpubuf_memory(array, GPUBUF_DATA, &memory));
    CHECK(memory.pointer == large->pointer && memory.bytes == 2048 && !memory.writable);
    CHECK(gpubuf_device_ordinal(array) == 0 && !strcmp(gpubuf_device(array), GPU0));
    WORKS(client, gpubuf_slice(array, 2, 1, &slice));
    WORKS(client, gpubuf_read(slice, GPUBUF_DATA, 0, values, sizeof(values), NULL));
    CHECK(values[0] == 256 && values[127] == 383);
    begin(0); /* a kernel's pointer */
    OK(cu->cuMemcpyDtoH(&small, (CUdeviceptr)(uintptr_t)gpubuf_bundle_at(bundle, 0)->pointer, 1));
    CHECK(small == 's');
    gpubuf_release(slice);
    gpubuf_release(array);
    gpubuf_bundle_free(bundle);
}

static void produce(int socket)
{
    struct gpubuf_client *client = new_client();
    struct gpubuf_object *object = create_model(client, "model");
    WORKS(client, gpubuf_seal(object, NULL));
    check(client, object);
    gpubuf_release(object);
    stay(socket);
}

static void consume(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = open_object(client, "model");
    check(client, object);
    gpubuf_release(object);
}

TEST(test_another_process)
{
    struct child producer = start_gpu(produce);
    await(producer.socket);
    run_gpu(consume);
    kill_child(producer);
    run_gpu(consume); /* what was sealed outlives its writer */
}

/* ---- a manifest that is still on its way ---- */

static void *open_gate(void *gate)
{
    /* Long enough for the manifest to be read too early, if it is not waited for. */
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    let_go(gate);
    return NULL;
}

TEST_IN_CHILD(test_a_late_manifest)
{
    static int gate;
    CLIENT *client = new_client();
    struct gpubuf_create_options options = on_gpu("cuda:0");
    struct gpubuf_layout_spec layout;
    struct gpubuf_bundle *planned, *bundle;
    struct gpubuf_object *object;
    uint64_t bytes;
    CUstream stream;
    pthread_t thread;
    begin(0);
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(NULL, gpubuf_bundle_plan(specs, 2, NULL, &planned));
    gpubuf_bundle_layout(planned, &layout);
    const void *head = gpubuf_bundle_head(planned, &bytes);
    WORKS(client, gpubuf_create(client, "late", &layout, &options, &object));
    OK(hold_stream(&gate, stream));
    WORKS(client, gpubuf_write(object, GPUBUF_DATA, 0, head, bytes, stream));
    WORKS(client, gpubuf_seal_on(object, NULL, stream));
    CHECK(pthread_create(&thread, NULL, open_gate, &gate) == 0);
    WORKS(client, gpubuf_bundle_open(object, &bundle));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(gpubuf_bundle_count(bundle) == 2);
    gpubuf_bundle_free(bundle);
    gpubuf_bundle_free(planned);
    gpubuf_release(object);
    OK(cu->cuStreamDestroy(stream));
}

static unsigned long long access_of(const struct gpubuf_object *object)
{
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    struct gpubuf_memory memory;
    unsigned long long flags = 0;

    CHECK(gpubuf_memory(object, GPUBUF_DATA, &memory) == 0);
    OK(cu->cuMemGetAccess(&flags, &place, (CUdeviceptr)(uintptr_t)memory.pointer));
    return flags;
}

/* An object that fills its segment can be kept from this process' own writes, and the next object
   there is written again. */
TEST_IN_CHILD(test_protecting)
{
    CLIENT *client = new_client();
    struct gpubuf_object *object = create_bytes(client, "bytes", 8 << 20, "cuda:0");

    begin(0);
    CHECK(gpubuf_protect(object) == GPUBUF_E_INVALID);
    WORKS(client, gpubuf_seal(object, NULL));
    CHECK(access_of(object) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(gpubuf_protect(object) == 1 && gpubuf_protect(object) == 1);
    CHECK(access_of(object) == CU_MEM_ACCESS_FLAGS_PROT_READ);
    WORKS(client, gpubuf_delete(client, "bytes"));
    gpubuf_release(object);
    object = create_bytes(client, "bytes", 8 << 20, "cuda:0");
    CHECK(access_of(object) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    gpubuf_release(object);
    object = create_bytes(client, "bytes", 100, "cuda:0");
    WORKS(client, gpubuf_seal(object, NULL));
    CHECK(gpubuf_protect(object) == 0);
    CHECK(access_of(object) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    WORKS(client, gpubuf_delete(client, "bytes"));
    gpubuf_release(object);
}

int main(int argc, char **argv)
{
    need_fakecuda(argv);
    return cmocka_run_group_tests(listed_tests, gpu_set_up, gpu_tear_down);
}
