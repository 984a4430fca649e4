/* A daemon with GPUs that is killed and started again: what went with it is told, and stale. */
#include "gpu.h"

static int supervised_set_up(void **state)
{
    static const char *const arguments[] = {"--supervise", "--grace",  "600000",
                                            "--device",    "cuda:all", NULL};
    return set_up(state) == 0 ? start_daemon_with(arguments) : -1;
}

static void kill_the_daemon_itself(void)
{
    char path[64], text[64] = "";
    int pid = (int)daemon_process();
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof(text), file));
    (void)fclose(file);
    CHECK(atoi(text) > 0 && kill((pid_t)atoi(text), SIGKILL) == 0);
}

static void wait_for_synced(struct gpubuf_client *client, struct told *told)
{
    while (!told->synced) {
        struct pollfd entry = {gpubuf_fd(client), (short)gpubuf_events(client), 0};
        CHECK(poll(&entry, 1, 60000) == 1);
        CHECK(gpubuf_dispatch(client) >= 0);
    }
}

static void survive(int socket)
{
    CLIENT *client = new_client();
    struct gpubuf_create_options ipc = on_gpu(GPU0);
    struct told told = {.text = ""};
    unsigned char seen[100];
    ipc.share = "ipc";
    put_pattern(client, "kept", 1000, GPU0);
    WORKS(client, gpubuf_put_bytes(client, "gone", "gone", 4, &ipc));
    WORKS(client, gpubuf_put_bytes(client, "replaced", "old", 3, &ipc));
    struct gpubuf_object *kept = open_object(client, "kept");
    struct gpubuf_object *gone = open_object(client, "gone");
    struct gpubuf_object *replaced = open_object(client, "replaced");
    put_pattern(client, "replaced", 100, GPU0);
    WORKS(client, gpubuf_watch(client, NULL, note_told, &told, NULL));
    wait_for_synced(client, &told);
    told = (struct told){.text = ""};
    kill_the_daemon_itself();
    wait_for_synced(client, &told);
    CHECK(strcmp(told.text, "reconnected:- sealed:kept sealed:replaced withdrawn:gone synced:- ") ==
          0);
    CHECK(gpubuf_is_stale(gone) && gpubuf_is_stale(replaced) && !gpubuf_is_stale(kept));
    WORKS(client, gpubuf_read(kept, GPUBUF_DATA, 0, seen, sizeof(seen), NULL));
    for (size_t i = 0; i < sizeof(seen); i++)
        CHECK(seen[i] == PATTERN(i));
    RETURNS(GPUBUF_E_NOT_FOUND, client, gpubuf_delete(client, "gone"));
    gpubuf_release(kept);
    gpubuf_release(gone);
    gpubuf_release(replaced);
}

/* RELIABILITY.md: Time 6 */
TEST_WITH(test_survive, supervised_set_up, gpu_tear_down)
{
    run_gpu(survive);
}

RUN_GPU_TESTS
