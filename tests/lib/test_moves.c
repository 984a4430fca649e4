/* gpubuf_spill and gpubuf_restore, on a daemon with a tier on disk. */
#include "harness.h"

static char place[] = "/tmp/gpubuf-tier.XXXXXX";

static int start_tiered(void **state)
{
    static char tier[sizeof(place) + 32];
    const char *const arguments[] = {"--tier", tier, "--watermarks", "100:100", NULL};

    if (!mkdtemp(place))
        return -1;
    snprintf(tier, sizeof(tier), "disk:64M:%s", place);
    return start_daemon_with(arguments);
}

static int stop_tiered(void **state)
{
    char lock[sizeof(place) + 32];
    int r = stop_daemon(state);

    snprintf(lock, sizeof(lock), "%s/gpubufd.lock", place);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(place), 0); /* the daemon has removed its other files */
    return r;
}

static const char *tier_of(struct gpubuf_client *client, const char *name)
{
    static struct gpubuf_info info;

    ok(client, gpubuf_stat(client, name, &info));
    return info.tier;
}

TEST(test_spill_and_restore)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object;
    struct gpubuf_memory memory;

    put_counting(client, "moves/a", 300000, 7);
    assert_string_equal(tier_of(client, "moves/a"), "device");
    ok(client, gpubuf_spill(client, "moves/a", NULL));
    assert_string_equal(tier_of(client, "moves/a"), "disk");
    ok(client, gpubuf_spill(client, "moves/a", "disk")); /* where it is already */
    ok(client, gpubuf_restore(client, "moves/a", 0));
    assert_string_equal(tier_of(client, "moves/a"), "device");
    ok(client, gpubuf_restore(client, "moves/a", 1000)); /* so, too */
    assert_int_equal(leases_of(client, "moves/a"), 0);

    ok(client, gpubuf_spill(client, "moves/a", "disk"));
    ok(client, gpubuf_open(client, "moves/a", NULL, &object));
    assert_string_equal(tier_of(client, "moves/a"), "device");
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 300000);
    for (size_t i = 0; i < memory.bytes; i++)
        if (((const unsigned char *)memory.pointer)[i] != (unsigned char)(7 + i))
            fail_msg("byte %zu came back wrong", i);
    fails(client, GPUBUF_E_BUSY, gpubuf_spill(client, "moves/a", NULL));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "moves/a"));
}

TEST(test_bad_arguments)
{
    CLIENT *client = connect_client();

    put_counting(client, "moves/b", 100, 0);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_spill(client, "moves/none", NULL));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_restore(client, "moves/none", 0));
    fails(client, GPUBUF_E_INVALID, gpubuf_spill(client, NULL, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_restore(client, "", 0));
    fails(client, GPUBUF_E_INVALID, gpubuf_spill(client, "moves/b", "tape"));
    fails(client, GPUBUF_E_INVALID, gpubuf_spill(client, "moves/b", "\xff"));
    fails(client, GPUBUF_E_INVALID, gpubuf_restore(client, "moves/b", -1));
    fails(client, GPUBUF_E_INVALID, gpubuf_restore(client, "moves/b", 86400001));
    assert_non_null(strstr(gpubuf_errmsg(client), "86400000"));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_spill(client, "moves/b", "host"));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_spill(NULL, "moves/b", NULL));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_restore(NULL, "moves/b", 0));
    ok(client, gpubuf_delete(client, "moves/b"));
}

RUN_TESTS(start_tiered, stop_tiered)
