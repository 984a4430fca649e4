/*
 * Every function of the driver failing, at its first call, its second, and so on until it is called
 * no more. Whatever fails says so with the driver's name of the error, leaves outputs alone and
 * leaks nothing, and afterwards everything works.
 */
#include "gpu.h"

#define ERROR 719 /* CUDA_ERROR_LAUNCH_FAILED */
#define ERROR_NAME "CUDA_ERROR_LAUNCH_FAILED"

static bool tolerant; /* while a function fails */
static bool failed;   /* something did */
static struct gpubuf_client *client, *other;

/* Whether the call succeeded; where nothing may fail it must. */
static bool worked(int r, const char *what, const struct gpubuf_client *whose)
{
    if (r == 0)
        return true;
    const char *message = gpubuf_errmsg(whose);
    if (!tolerant || r != GPUBUF_E_DEVICE || !strstr(message, ERROR_NAME)) {
        fprintf(stderr, "%s: %d: %s\n", what, r, message);
        _exit(1);
    }
    failed = true;
    return false;
}
#define TRY(call) worked(call, #call, client)
#define TRY_OTHER(call) worked(call, #call, other)

static struct gpubuf_object *const untouched = (struct gpubuf_object *)(uintptr_t)0x55;

static struct gpubuf_object *try_open(struct gpubuf_client *whose, const char *name)
{
    struct gpubuf_object *object = untouched;
    if (worked(gpubuf_open(whose, name, NULL, &object), name, whose))
        return object;
    CHECK(object == untouched);
    return NULL;
}

/* ---- what is tried ---- */

static void put_and_read(const char *share)
{
    struct gpubuf_create_options options = on_gpu("cuda:0");
    char data[1000], got[1000];
    options.share = share;
    memset(data, 7, sizeof(data));
    if (!TRY(gpubuf_put_bytes(client, "put", data, sizeof(data), &options)))
        return;
    struct gpubuf_object *object = try_open(client, "put");
    if (!object)
        return;
    if (TRY(gpubuf_read(object, GPUBUF_DATA, 0, got, sizeof(got), NULL)))
        CHECK(!memcmp(got, data, sizeof(got)));
    gpubuf_release(object);
}

static void order(CUstream stream)
{
    struct gpubuf_create_options options = on_gpu("cuda:0");
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 1000};
    struct gpubuf_object *object = untouched;
    if (!TRY(gpubuf_create(client, "order", &layout, &options, &object))) {
        CHECK(object == untouched);
        return;
    }
    char data[1000] = {1};
    bool written = TRY(gpubuf_write(object, GPUBUF_DATA, 0, data, sizeof(data), stream));
    if (written && TRY(gpubuf_seal_on(object, NULL, stream))) {
        struct gpubuf_object *theirs = try_open(other, "order");
        if (theirs) {
            (void)TRY_OTHER(gpubuf_wait_ready(theirs, stream));
            (void)TRY_OTHER(gpubuf_wait_ready(theirs, NULL));
            if (!TRY_OTHER(gpubuf_release_on(theirs, stream)))
                gpubuf_release(theirs);
        }
        (void)TRY(gpubuf_wait_ready(object, NULL));
    } else {
        CHECK(gpubuf_object_version(object) == 0);
    }
    while (cu->cuStreamSynchronize(stream) != CUDA_SUCCESS) /* before it is unmapped */
        failed = true;
    gpubuf_release(object);
}

/* Of another process, whose work is not done. */
static void look_at_pending(void)
{
    struct gpubuf_object *object = try_open(client, "late");
    struct ArrowDeviceArray array = {.device_id = 77};
    if (!object)
        return;
    if (TRY(gpubuf_export_arrow_device(object, NULL, &array))) {
        CHECK(array.sync_event && array.device_id == 0);
        array.array.release(&array.array);
    } else {
        CHECK(array.device_id == 77);
    }
    gpubuf_release(object);
}

static void share_own(CUdeviceptr legacy, CUdeviceptr vmm)
{
    static const char layout[] = "{\"kind\":\"bytes\",\"bytes\":100,\"data\":"
                                 "{\"handle\":0,\"offset\":0,\"bytes\":100}}";
    struct gpubuf_create_options options = on_gpu(NULL);
    (void)TRY(gpubuf_register_device(client, "own", (void *)(uintptr_t)(legacy + 256), 100, layout,
                                     &options));
    (void)TRY(gpubuf_register_device(client, "own", (void *)(uintptr_t)(vmm + 256), 100, layout,
                                     &options));
    struct gpubuf_object *object = try_open(client, "theirs"); /* of the legacy kind */
    gpubuf_release(object);
}

static bool put_version(const char *label)
{
    struct gpubuf_create_options options = on_gpu("cuda:0");
    char data[1000];
    options.own = true;
    options.keep = 1;
    options.label = label;
    memset(data, label[0], sizeof(data));
    return TRY(gpubuf_put_bytes(client, "view", data, sizeof(data), &options));
}

static bool try_switch(struct gpubuf_view *view, const char *label)
{
    const struct gpubuf_open_options options = {.size = sizeof(options), .label = label};
    int r = gpubuf_switch(view, &options, NULL, 0);
    return TRY(r < 0 ? r : 0);
}

/* Whether it worked or not, all that is shown is of the version that the view says. */
static void look_through(const struct gpubuf_view *view, const void *address)
{
    struct gpubuf_object *object = gpubuf_view_object(view);
    struct gpubuf_memory memory;
    char data[1000];
    if (gpubuf_is_parked(view))
        return;
    CHECK(gpubuf_memory(object, GPUBUF_DATA, &memory) == 0 && memory.pointer == address);
    if (!TRY(gpubuf_read(object, GPUBUF_DATA, 0, data, sizeof(data), NULL)))
        return;
    CHECK(data[0] == gpubuf_label(object)[0] && data[999] == data[0]);
}

static void view_versions(void)
{
    struct gpubuf_view *view = NULL;
    struct gpubuf_memory memory;
    if (!put_version("a") || !put_version("b") || !TRY(gpubuf_follow(client, "view", NULL, &view)))
        return;
    CHECK(gpubuf_memory(gpubuf_view_object(view), GPUBUF_DATA, &memory) == 0);
    look_through(view, memory.pointer);
    for (int i = 0; i < 4; i++) {
        (void)try_switch(view, i % 2 ? "b" : "a");
        look_through(view, memory.pointer);
    }
    bool parked = TRY(gpubuf_park(view, NULL, 0));
    CHECK(parked == gpubuf_is_parked(view));
    look_through(view, memory.pointer);
    int r = gpubuf_resume(view, 0);
    (void)TRY(r < 0 ? r : 0);
    look_through(view, memory.pointer);
    gpubuf_unfollow(view);
}

static size_t count_device_mappings(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, devices_directory) != NULL;
    fclose(maps);
    return count;
}

static void scenario(CUstream stream, CUdeviceptr legacy, CUdeviceptr vmm)
{
    client = client_with_cache(1);
    other = client_with_cache(1);
    put_and_read("fd");
    put_and_read("ipc");
    order(stream);
    look_at_pending();
    share_own(legacy, vmm);
    view_versions();
    gpubuf_disconnect(other);
    gpubuf_disconnect(client);
}

/* ---- one function, one call ---- */

enum { MOST_CALLS = 64 }; /* of one function: as many rules as the fake driver takes */

struct outcome {
    uint64_t calls, told;
};

static const char *function;
static char switch_path[128]; /* with the number of a call it is that rule's file */

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* A call that gives back is tried once; memory that the driver does not take back is lost, whatever
   we do. */
static const char *const giving_back[] = {
    "cuMemUnmap",     "cuMemAddressFree",    "cuMemRelease",    "cuDevicePrimaryCtxRelease",
    "cuEventDestroy", "cuIpcCloseMemHandle", "cuCtxPopCurrent", NULL};

/* Not of the library's calls, or no failure of theirs is one. */
static const char *const not_tried[] = {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
                                        "cuPointerGetAttribute", NULL};

/* Makes the next rule of the environment hold, or no more. */
static void set_switch(unsigned call, bool on)
{
    char path[160];
    snprintf(path, sizeof(path), "%s%u", switch_path, call);
    FILE *file = on ? fopen(path, "w") : NULL;
    CHECK(on ? file && fclose(file) == 0 : unlink(path) == 0);
}

/* Fails each call in turn, in one process: what a failure has broken the last round finds. */
static void fail_and_recover(int socket)
{
    /* A context that stays current is one of few, and the library leaves it at one place. */
    const unsigned step = strcmp(function, "cuCtxPopCurrent") == 0 ? 3 : 1;
    struct outcome outcome = {.calls = 1};
    begin(0);
    CUstream stream = new_stream();
    CUdeviceptr legacy, vmm = map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cu->cuMemAlloc(&legacy, MB));
    scenario(stream, legacy, vmm);
    size_t fds = count_fds(), mappings = count_device_mappings();

    for (unsigned call = 1; call <= outcome.calls && call <= MOST_CALLS; call += step) {
        set_switch(call, true);
        uint64_t before = driver_calls(function);
        failed = false;
        tolerant = true;
        scenario(stream, legacy, vmm);
        tolerant = false;
        outcome.calls = driver_calls(function) - before;
        outcome.told += failed;
        set_switch(call, false);
        if (!is_among(function, giving_back)) {
            CHECK(count_fds() == fds);
            CHECK(count_device_mappings() == mappings);
        }
    }
    scenario(stream, legacy, vmm);
    tell(socket, &outcome, sizeof(outcome));
}

static void hold_late(int socket)
{
    struct gpubuf_client *mine = new_client();
    struct gpubuf_create_options options = on_gpu(NULL);
    static int gate;
    begin(0);
    CUstream stream = new_stream();
    struct gpubuf_object *object = create_bytes(mine, "late", 1000, "cuda:0");
    OK(hold_stream(&gate, stream));
    WORKS(mine, gpubuf_seal_on(object, NULL, stream));
    CUdeviceptr pointer;
    OK(cu->cuMemAlloc(&pointer, MB));
    WORKS(mine, gpubuf_register_device(mine, "theirs", (void *)(uintptr_t)pointer, 100,
                                       "{\"kind\":\"bytes\",\"bytes\":100,\"data\":"
                                       "{\"handle\":0,\"offset\":0,\"bytes\":100}}",
                                       &options));
    stay(socket);
}

/* A rule for each call of the function, which holds while its file is there. */
static void set_rules(void)
{
    char rules[MOST_CALLS * 256], *at = rules;
    for (int call = 1; call <= MOST_CALLS; call++)
        at += sprintf(at, "%s%s:%d:%d@%s%d", call > 1 ? "," : "", function, call, ERROR,
                      switch_path, call);
    setenv("FAKECUDA_FAIL", rules, 1);
}

GPU_TEST(test_every_function_fails)
{
    static const char *const functions[] = {
#define NAME(name, suffix, version, hip, parameters) #name,
        GB_CUDA_FUNCTION_MAP(NAME)
#undef NAME
    };
    size_t used = 0, failures = 0;
    struct child holder = start_gpu(hold_late);
    await(holder.socket);
    snprintf(switch_path, sizeof(switch_path), "%s/switch", devices_directory);
    for (size_t i = 0; i < COUNT(functions); i++) {
        struct outcome outcome;
        function = functions[i];
        if (is_among(function, not_tried))
            continue;
        set_rules();
        struct child child = start_gpu(fail_and_recover);
        hear(child.socket, &outcome, sizeof(outcome));
        ends_well(child);
        if (outcome.calls > 0 && outcome.told == 0 &&
            !is_among(function, giving_back) && /* of a wait that fails the outcome is asked for */
            strcmp(function, "cuEventSynchronize") != 0)
            fail_msg("%s failed %d times, and nobody said so", function, (int)outcome.calls);
        used += outcome.calls > 0;
        failures += outcome.told;
    }
    kill_child(holder);
    assert_true(used > 20 && failures > 60);
}

RUN_GPU_TESTS
