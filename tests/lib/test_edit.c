/* gpubuf_edit: a copy of a sealed object, to be sealed as the next version. */
#include "objects.h"

/* Each test has a client of its own, whose idle mappings end with it. */
static struct gpubuf_object *edit(const char *name)
{
    struct gpubuf_object *object;
    ok(client, gpubuf_edit(client, name, NULL, &object));
    assert_int_equal(gpubuf_object_version(object), 0);
    return object;
}

static struct gpubuf_object *open_object(const char *name)
{
    struct gpubuf_object *object;
    ok(client, gpubuf_open(client, name, NULL, &object));
    return object;
}

COUNTED(test_bytes)
{
    client = connect_uncached();
    struct gpubuf_info before, after;
    const struct gpubuf_create_options options = {.size = sizeof(options),
                                                  .mode = 0640,
                                                  .ttl_ms = 3600000,
                                                  .label = "first",
                                                  .keep = 3,
                                                  .final = true,
                                                  .scope = GPUBUF_SCOPE_CLUSTER};
    ok(client, gpubuf_put_bytes(client, "x", "0123456789", 10, &options));
    ok(client, gpubuf_stat(client, "x", &before));
    struct gpubuf_object *old = open_object("x"), *object = edit("x");
    assert_memory_equal(memory_of(object, GPUBUF_DATA, 10), "0123456789", 10);
    ok(client, gpubuf_write(object, GPUBUF_DATA, 3, "abc", 3, NULL));
    ok(client, gpubuf_set_label(object, "second", -1));
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);

    assert_memory_equal(memory_of(old, GPUBUF_DATA, 10), "0123456789", 10);
    gpubuf_release(old);
    object = open_object("x");
    assert_memory_equal(memory_of(object, GPUBUF_DATA, 10), "012abc6789", 10);
    assert_string_equal(gpubuf_label(object), "second");
    gpubuf_release(object);
    ok(client, gpubuf_stat(client, "x", &after));
    assert_true(after.version > before.version && after.final);
    assert_int_equal(after.mode, 0640);
    assert_int_equal(after.ttl_ms, 3600000);
    assert_int_equal(after.keep, 3);
    assert_int_equal(after.scope, GPUBUF_SCOPE_CLUSTER);

    /* An older version is edited as well. */
    const struct gpubuf_open_options first = {.size = sizeof(first), .label = "first"};
    ok(client, gpubuf_edit(client, "x", &first, &object));
    assert_memory_equal(memory_of(object, GPUBUF_DATA, 10), "0123456789", 10);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "x"));
    gpubuf_disconnect(client);
}

/* Memory that a program registered may lie in any order; what is edited lies in C order. */
COUNTED(test_strided)
{
    client = connect_uncached();
    static const char layout[] =
        "{\"kind\":\"array\",\"dtype\":\"int32\",\"shape\":[3,4],\"strides\":[4,16],"
        "\"data\":{\"handle\":0,\"offset\":16,\"bytes\":60}}";
    int32_t values[16];
    for (int i = 0; i < 16; i++)
        values[i] = i;
    int fd = fake_memfd(4096, 0, 0x0002); /* F_SEAL_SHRINK */
    assert_int_equal(pwrite(fd, values, sizeof(values), 16), sizeof(values));
    ok(client, gpubuf_register_memfd(client, "x", fd, 4096, layout, NULL));
    close(fd);
    struct gpubuf_object *object = edit("x");
    const int32_t expected[12] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14};
    assert_memory_equal(memory_of(object, GPUBUF_DATA, 48), expected, 48);
    assert_int_equal(gpubuf_strides(object)[0], 16);
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "x"));
    gpubuf_disconnect(client);
}

/* The counts of a table's nulls are those of what is written. */
COUNTED(test_nulls)
{
    client = connect_uncached();
    const double degrees[] = {21.5, 19, 23.25};
    const bool valid[] = {true, false, true};
    const struct gpubuf_values columns[] = {{"degrees", "float64", degrees, valid}};
    ok(client, gpubuf_put_table(client, "x", columns, 1, 3, NULL));
    struct gpubuf_object *object = edit("x"), *column;
    ok(client, gpubuf_child(object, 0, &column));
    assert_int_equal(gpubuf_null_count(column), -1);
    *(unsigned char *)memory_of(column, GPUBUF_MASK, 1) = 0x7;
    const int64_t wrong = 1, none = 0;
    fails(client, GPUBUF_E_INVALID, gpubuf_seal(object, &wrong));
    ok(client, gpubuf_seal(object, &none));
    assert_int_equal(gpubuf_null_count(column), 0);
    gpubuf_release(column);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "x"));
    gpubuf_disconnect(client);
}

COUNTED(test_refused)
{
    client = connect_uncached();
    struct gpubuf_object *object;
    const struct gpubuf_create_options live = {.size = sizeof(live), .live = true};
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    const struct gpubuf_open_options write = {.size = sizeof(write), .write = true};
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_edit(client, "x", NULL, &object));
    ok(client, gpubuf_put_bytes(client, "x", "0123456789", 10, NULL));
    uint64_t used = stat_value(client, "used");
    fails(client, GPUBUF_E_INVALID, gpubuf_edit(client, "x", &write, &object));
    /* Nobody sees what was released, or replaced by somebody faster. */
    gpubuf_release(edit("x"));
    assert_int_equal(leases_of(client, "x"), 0);
    assert_int_equal(stat_value(client, "used"), used);
    object = edit("x");
    ok(client, gpubuf_delete(client, "x"));
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "x"));
    ok(client, gpubuf_create(client, "pool", &layout, &live, &object));
    gpubuf_release(object);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_edit(client, "pool", NULL, &object));
    assert_non_null(strstr(gpubuf_errmsg(client), "open it for writing"));
    ok(client, gpubuf_delete(client, "pool"));
    gpubuf_disconnect(client);
}

RUN_TESTS(start_daemon, stop_daemon)
