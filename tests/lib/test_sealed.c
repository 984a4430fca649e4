/* A program and the memory of an object that it has sealed. */
#include "harness.h"

#define MIB (1u << 20)

/* Whether a child that writes the byte dies of it; `address` may be anybody's. */
static bool faults(char *address)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would tell of it */
        volatile char *byte = address;
        char value = *byte;
        *byte = value;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static char *data_of(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;

    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
    return memory.pointer;
}

static struct gpubuf_object *create_bytes(struct gpubuf_client *client, const char *name,
                                          uint64_t bytes,
                                          const struct gpubuf_create_options *options)
{
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    struct gpubuf_object *object;

    ok(client, gpubuf_create(client, name, &layout, options, &object));
    if (bytes > 0)
        memset(data_of(object), 0x5a, bytes);
    return object;
}

COUNTED(test_what_is_sealed_faults)
{
    static const uint64_t sizes[] = {70000, MIB, 20 * MIB + 12345};
    CLIENT *client = connect_client();

    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint64_t bytes = sizes[i];
        struct gpubuf_object *before = create_bytes(client, "before", 5000, NULL);
        struct gpubuf_object *object = create_bytes(client, "sealed", bytes, NULL);
        struct gpubuf_object *after = create_bytes(client, "after", 5000, NULL);
        char *data = data_of(object);
        struct gpubuf_memory memory;

        assert_false(faults(data + bytes / 2));
        ok(client, gpubuf_seal(object, NULL));
        assert_true(faults(data + 4096));
        assert_true(faults(data + bytes / 2));
        assert_true(faults(data + bytes - 8192));
        assert_int_equal(data[bytes - 1], 0x5a);
        assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
        assert_ptr_equal(memory.pointer, data);
        assert_false(memory.writable);
        assert_false(faults(data_of(before)));
        assert_false(faults(data_of(before) + 4999));
        assert_false(faults(data_of(after)));
        gpubuf_release(before);
        gpubuf_release(after);
        gpubuf_release(object);
        ok(client, gpubuf_delete(client, "sealed"));
    }
}

/* A seal that failed leaves the object as it was. */
COUNTED(test_not_sealed_does_not_fault)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object = create_bytes(client, "taken", MIB, NULL);
    char *data = data_of(object);

    put_counting(client, "taken", 10, 1);
    fails(client, GPUBUF_E_EXISTS, gpubuf_seal(object, NULL));
    memset(data, 1, MIB);
    ok(client, gpubuf_delete(client, "taken"));
    ok(client, gpubuf_seal(object, NULL));
    assert_true(faults(data + MIB / 2));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "taken"));
}

/* Memory that was an object's is another's to be written, whichever of the two ended how. */
COUNTED(test_what_comes_after_can_be_written)
{
    CLIENT *client = connect_client(), *other = connect_client();
    const struct gpubuf_create_options replace = {.size = sizeof(replace), .replace = true};
    struct gpubuf_object *kept[4];

    for (int round = 0; round < 40; round++) {
        struct gpubuf_client *one = round % 2 ? client : other;
        uint64_t bytes = 70000 + (unsigned)(round * 79190) % MIB;

        if (round >= 4)
            gpubuf_release(kept[round % 4]);
        kept[round % 4] = create_bytes(one, "again", bytes, &replace);
        if (round % 5 == 4)
            continue; /* that one is given up */
        ok(one, gpubuf_seal(kept[round % 4], NULL));
        assert_true(faults(data_of(kept[round % 4]) + 8192));
    }
    for (int i = 0; i < 4; i++)
        gpubuf_release(kept[i]);
    ok(client, gpubuf_delete(client, "again"));
}

/* An asynchronous seal, too, and one that is released before it was answered. */
static void note(struct gpubuf_client *client, int status, struct gpubuf_object *object, void *arg)
{
    assert_int_equal(status, 0);
    *(bool *)arg = true;
    gpubuf_release(object);
}

COUNTED(test_asynchronous)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object = create_bytes(client, "later", MIB, NULL);
    char *data = data_of(object);
    bool done = false;

    ok(client, gpubuf_seal_async(object, NULL, note, &done, NULL));
    dispatch_until(client, &done);
    assert_true(faults(data + MIB / 2));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "later"));
}

/* A program cannot write what it opens, its own objects of any size included. */
COUNTED(test_what_is_opened_faults)
{
    CLIENT *client = connect_client();

    for (uint64_t bytes = 8; bytes <= 8 * MIB; bytes *= 128) {
        struct gpubuf_object *made = create_bytes(client, "own", bytes, NULL), *opened;

        ok(client, gpubuf_seal(made, NULL));
        ok(client, gpubuf_open(client, "own", NULL, &opened));
        assert_int_equal(memcmp(data_of(opened), data_of(made), bytes), 0);
        assert_true(faults(data_of(opened)));
        assert_true(faults(data_of(opened) + bytes - 1));
        gpubuf_release(opened);
        gpubuf_release(made);
        ok(client, gpubuf_delete(client, "own"));
    }
}

/* More guards than a process should have: what is beyond can be written, and nothing else
   happens. */
COUNTED(test_many)
{
    static struct gpubuf_object *objects[300];
    CLIENT *client = connect_client();
    size_t before = count_mappings();

    for (int round = 0; round < 3; round++) {
        char name[32];

        for (size_t i = 0; i < COUNT(objects); i++) {
            snprintf(name, sizeof(name), "many/%zu", i);
            objects[i] = create_bytes(client, name, 80000, NULL);
            ok(client, gpubuf_seal(objects[i], NULL));
        }
        for (size_t i = 0; i < COUNT(objects); i++) {
            assert_true(i % 50 || faults(data_of(objects[i]) + 8192));
            gpubuf_release(objects[i]);
            snprintf(name, sizeof(name), "many/%zu", i);
            ok(client, gpubuf_delete(client, name));
        }
    }
    assert_true(count_mappings() <= before + 16); /* all is one mapping again */
}

/* ---- masks and padding ---- */

static const unsigned char *mask_of(const struct gpubuf_object *column)
{
    struct gpubuf_memory memory;

    assert_int_equal(gpubuf_memory(column, GPUBUF_MASK, &memory), 0);
    return memory.pointer;
}

COUNTED(test_masks_and_padding_are_zero)
{
    CLIENT *client = connect_client();

    for (int round = 0; round < 6; round++) {
        struct gpubuf_column_spec columns[2] = {
            {.name = "a", .dtype = "int64", .length = 1001, .mask = true},
            {.name = "b", .dtype = "utf8", .length = 1001, .mask = true, .data_bytes = 777},
        };
        struct gpubuf_layout_spec layout = {
            .kind = GPUBUF_KIND_TABLE,
            .column = {.length = 1001, .children = columns, .child_count = 2},
        };
        struct gpubuf_object *dirt[8], *table, *a, *b;

        for (size_t i = 0; i < COUNT(dirt); i++) /* what lay there before is 0x5a everywhere */
            dirt[i] = create_bytes(client, "dirt", 30000, NULL);
        for (size_t i = 0; i < COUNT(dirt); i++)
            gpubuf_release(dirt[i]);
        ok(client, gpubuf_create(client, "clean", &layout, NULL, &table));
        assert_int_equal(gpubuf_child(table, 0, &a), 0);
        assert_int_equal(gpubuf_child(table, 1, &b), 0);
        for (size_t i = 0; i < 128; i++) {
            assert_int_equal(mask_of(a)[i], 0);
            assert_int_equal(mask_of(b)[i], 0);
        }
        for (size_t i = 1001 * 8; i < 1001 * 8 + 56; i++)
            assert_int_equal(data_of(a)[i], 0);
        for (size_t i = 777; i < 832; i++)
            assert_int_equal(data_of(b)[i], 0);
        assert_int_equal(data_of(a)[round], 0x5a); /* the test's own: the memory was used before */
        gpubuf_release(a);
        gpubuf_release(b);
        gpubuf_release(table);
    }
}

/* ---- final ---- */

static const struct gpubuf_create_options final = {.size = sizeof(final), .final = true};

COUNTED(test_final)
{
    CLIENT *client = connect_client();

    for (uint64_t bytes = 10; bytes <= 20 * MIB; bytes *= 1000) {
        struct gpubuf_object *object = create_bytes(client, "final", bytes, &final), *opened;
        char *data = data_of(object);
        struct gpubuf_info info;

        ok(client, gpubuf_seal(object, NULL));
        assert_ptr_equal(data_of(object), data);
        assert_int_equal(data[bytes - 1], 0x5a);
        assert_true(faults(data));
        assert_int_equal(
            mprotect((void *)((uintptr_t)data & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE),
            0);
        *data = 1; /* the program's own page now, and nobody else's */
        ok(client, gpubuf_stat(client, "final", &info));
        assert_true(info.final);
        struct gpubuf_client *reader = connect_client();
        ok(reader, gpubuf_open(reader, "final", NULL, &opened));
        assert_int_equal(*data_of(opened), 0x5a);
        gpubuf_release(opened);
        gpubuf_disconnect(reader);
        gpubuf_release(object);
        ok(client, gpubuf_delete(client, "final"));
    }
    struct gpubuf_object *empty = create_bytes(client, "final", 0, &final);
    ok(client, gpubuf_seal(empty, NULL));
    gpubuf_release(empty);
    ok(client, gpubuf_delete(client, "final"));
}

/* Another process that has it mapped is in the way, and the object is as it was. */
COUNTED(test_final_and_mapped_elsewhere)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object = create_bytes(client, "shared", 9000, &final);
    char *data = data_of(object);
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    fails(client, GPUBUF_E_BUSY, gpubuf_seal(object, NULL));
    assert_non_null(strstr(gpubuf_errmsg(client), "mapped for writing"));
    memset(data, 7, 9000);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    ok(client, gpubuf_seal(object, NULL));
    assert_int_equal(data[8999], 7);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "shared"));
}

/* The name was taken meanwhile: it may be sealed again, and no more be written. */
COUNTED(test_final_and_refused)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object = create_bytes(client, "taken", 9000, &final);
    struct gpubuf_memory memory;

    put_counting(client, "taken", 10, 1);
    fails(client, GPUBUF_E_EXISTS, gpubuf_seal(object, NULL));
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    assert_false(memory.writable);
    fails(client, GPUBUF_E_BUSY, gpubuf_write(object, GPUBUF_DATA, 0, "x", 1, NULL));
    ok(client, gpubuf_delete(client, "taken"));
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "taken"));
}

COUNTED(test_put_final)
{
    static char content[3 * MIB];
    CLIENT *client = connect_client();
    struct gpubuf_object *object;
    struct gpubuf_info info;

    memset(content, 3, sizeof(content));
    ok(client, gpubuf_put_bytes(client, "put", content, sizeof(content), &final));
    ok(client, gpubuf_stat(client, "put", &info));
    assert_true(info.final);
    ok(client, gpubuf_open(client, "put", NULL, &object));
    assert_int_equal(memcmp(data_of(object), content, sizeof(content)), 0);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "put"));
}

COUNTED(test_protect_is_for_the_creator)
{
    CLIENT *client = connect_client(), *reader = connect_client();
    struct gpubuf_object *object = create_bytes(client, "mine", MIB, NULL), *opened;

    assert_int_equal(gpubuf_protect(object), GPUBUF_E_INVALID); /* not sealed yet */
    ok(client, gpubuf_seal(object, NULL));
    assert_int_equal(gpubuf_protect(object), 1);
    ok(reader, gpubuf_open(reader, "mine", NULL, &opened));
    assert_int_equal(gpubuf_protect(opened), GPUBUF_E_INVALID);
    gpubuf_release(opened);
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "mine"));
}

RUN_TESTS(start_daemon, stop_daemon)
