/* Bundles: planned, written, opened by others, and their arrays as objects of their own. */
#include "objects.h"

static const uint64_t weight_shape[] = {3, 4}, bias_shape[] = {5}, packed_shape[] = {2, 6},
                      none_shape[] = {0, 2};
static const float weight[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const struct gpubuf_tensor_spec specs[] = {
    {"bias", "int8", 1, bias_shape},
    {"weight", "float32", 2, weight_shape},
    {"packed", "float4_e2m1fn", 2, packed_shape},
    {"none", "bfloat16", 2, none_shape},
    {"scale", "float64", 0, NULL},
};
static const void *const data[] = {"12345", weight, "\x12\x34\x56\x78\x9a\xbc", "", "scale678"};
static const char *const metadata[] = {"format", "pt", "step", "42", NULL};

static struct gpubuf_bundle *plan(void)
{
    struct gpubuf_bundle *bundle;
    ok(NULL, gpubuf_bundle_plan(specs, COUNT(specs), metadata, &bundle));
    return bundle;
}

/* As the header says that producers do. */
static struct gpubuf_object *create(const char *name, const struct gpubuf_bundle *bundle,
                                    const struct gpubuf_create_options *options)
{
    struct gpubuf_object *object;
    struct gpubuf_layout_spec layout;
    uint64_t bytes;
    const void *head = gpubuf_bundle_head(bundle, &bytes);
    gpubuf_bundle_layout(bundle, &layout);
    ok(client, gpubuf_create(client, name, &layout, options, &object));
    ok(client, gpubuf_write(object, GPUBUF_DATA, 0, head, bytes, NULL));
    for (size_t i = 0; i < gpubuf_bundle_count(bundle); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        ok(client, gpubuf_write(object, GPUBUF_DATA, tensor->offset, data[i], tensor->bytes, NULL));
    }
    return object;
}

static void publish(const char *name)
{
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_bundle *bundle = plan();
    struct gpubuf_object *object = create(name, bundle, &options);
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    gpubuf_bundle_free(bundle);
}

static void check_tensors(const struct gpubuf_bundle *bundle, bool mapped)
{
    size_t i;
    assert_int_equal(gpubuf_bundle_count(bundle), COUNT(specs));
    for (i = 0; i < COUNT(specs); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        assert_string_equal(tensor->name, specs[i].name);
        assert_string_equal(tensor->dtype, specs[i].dtype);
        assert_int_equal(tensor->ndim, specs[i].ndim);
        for (unsigned k = 0; k < tensor->ndim; k++)
            assert_int_equal(tensor->shape[k], specs[i].shape[k]);
        if (mapped)
            assert_memory_equal(tensor->pointer, data[i], tensor->bytes);
        else
            assert_null(tensor->pointer);
        size_t found = 99;
        assert_ptr_equal(gpubuf_bundle_find(bundle, specs[i].name, &found), tensor);
        assert_int_equal(found, i);
    }
    assert_null(gpubuf_bundle_at(bundle, i));
    assert_null(gpubuf_bundle_find(bundle, "weights", &i));
    assert_int_equal(i, COUNT(specs));
    assert_null(gpubuf_bundle_find(bundle, NULL, NULL));
    assert_string_equal(gpubuf_bundle_metadata(bundle, "step"), "42");
    assert_null(gpubuf_bundle_metadata(bundle, "stop"));
    assert_null(gpubuf_bundle_metadata(bundle, NULL));
    const char *key, *value;
    assert_int_equal(gpubuf_bundle_metadata_at(bundle, 0, &key, &value), 0);
    assert_string_equal(key, "format");
    assert_string_equal(value, "pt");
    assert_int_equal(gpubuf_bundle_metadata_at(bundle, 2, &key, &value), 1);
}

TEST(test_there_and_back)
{
    struct gpubuf_bundle *planned = plan(), *bundle;
    struct gpubuf_object *object, *slice;
    struct gpubuf_layout_spec layout;
    uint64_t bytes;
    check_tensors(planned, false);
    object = create("model", planned, NULL);
    ok(client, gpubuf_bundle_open(object, &bundle)); /* while it is being written */
    check_tensors(bundle, true);
    gpubuf_bundle_free(bundle);
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);

    ok(client, gpubuf_open(client, "model", NULL, &object));
    assert_int_equal(gpubuf_kind(object), GPUBUF_KIND_BUNDLE);
    assert_string_equal(gpubuf_dtype(object), "");
    assert_int_equal(gpubuf_null_count(object), 0);
    assert_int_equal(gpubuf_child_count(object), 0);
    assert_null(gpubuf_metadata(object, "step"));
    fails(client, GPUBUF_E_INVALID, gpubuf_slice(object, 0, 8, &slice));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_export_arrow(object, NULL, NULL));
    ok(client, gpubuf_bundle_open(object, &bundle));
    gpubuf_bundle_layout(planned, &layout);
    assert_int_equal(gpubuf_length(object), layout.bytes);
    gpubuf_bundle_layout(bundle, &layout);
    assert_int_equal(gpubuf_length(object), layout.bytes);
    assert_null(gpubuf_bundle_head(bundle, &bytes));
    assert_int_equal(bytes, 0);
    gpubuf_release(object); /* which the bundle holds */
    assert_int_equal(leases_of(client, "model"), 1);
    check_tensors(bundle, true);
    gpubuf_bundle_free(bundle);
    assert_int_equal(leases_of(client, "model"), 0);
    gpubuf_bundle_free(planned);
    gpubuf_bundle_free(NULL);
}

COUNTED(test_arrays)
{
    struct gpubuf_object *object, *array, *slice, *other;
    struct gpubuf_bundle *bundle;
    struct gpubuf_memory memory;
    publish("model");
    ok(client, gpubuf_open(client, "model", NULL, &object));
    ok(client, gpubuf_bundle_open(object, &bundle));
    gpubuf_release(object);
    ok(client, gpubuf_bundle_array(bundle, 1, &array));
    ok(client, gpubuf_bundle_array(bundle, 2, &other));
    assert_int_equal(gpubuf_ndim(other), 2);
    assert_int_equal(gpubuf_strides(other)[0], 3);
    assert_int_equal(gpubuf_strides(other)[1], 1);
    assert_memory_equal(memory_of(other, GPUBUF_DATA, 6), data[2], 6);
    gpubuf_release(other);
    ok(client, gpubuf_bundle_array(bundle, 3, &other));
    ok(client, gpubuf_memory(other, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 0);
    assert_non_null(memory.pointer);
    gpubuf_release(other);
    ok(client, gpubuf_bundle_array(bundle, 4, &other));
    assert_int_equal(gpubuf_ndim(other), 0);
    assert_int_equal(gpubuf_length(other), 1);
    assert_memory_equal(memory_of(other, GPUBUF_DATA, 8), data[4], 8);
    gpubuf_release(other);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_bundle_array(bundle, COUNT(specs), &other));
    gpubuf_bundle_free(bundle);

    /* It outlives the bundle, and what is cut from it outlives it. */
    assert_int_equal(gpubuf_kind(array), GPUBUF_KIND_ARRAY);
    assert_string_equal(gpubuf_dtype(array), "float32");
    assert_string_equal(gpubuf_name(array), "model");
    assert_int_equal(gpubuf_length(array), 3);
    assert_int_equal(gpubuf_null_count(array), 0);
    assert_int_equal(gpubuf_offset(array), 0);
    assert_memory_equal(memory_of(array, GPUBUF_DATA, sizeof(weight)), weight, sizeof(weight));
    assert_int_equal(gpubuf_memory(array, GPUBUF_MASK, &memory), 1);
    ok(client, gpubuf_slice(array, 1, 2, &slice));
    gpubuf_release(array);
    assert_int_equal(gpubuf_strides(slice)[0], 16);
    assert_memory_equal(memory_of(slice, GPUBUF_DATA, 32), weight + 4, 32);
    assert_int_equal(leases_of(client, "model"), 1);
    gpubuf_release(slice);
    assert_int_equal(leases_of(client, "model"), 0);

    struct ArrowSchema schema;
    struct ArrowArray arrow;
    ok(client, gpubuf_open(client, "model", NULL, &object));
    ok(client, gpubuf_bundle_open(object, &bundle));
    ok(client, gpubuf_bundle_array(bundle, 0, &array));
    gpubuf_bundle_free(bundle);
    gpubuf_release(object);
    ok(client, gpubuf_export_arrow(array, &schema, &arrow));
    gpubuf_release(array);
    assert_string_equal(schema.format, "c");
    assert_int_equal(arrow.length, 5);
    assert_memory_equal(arrow.buffers[1], "12345", 5);
    schema.release(&schema);
    arrow.release(&arrow);
}

/* Puts a bundle of this manifest, with `bytes` of data, and opens it. */
static int open_text(const char *manifest, uint64_t said, uint64_t data_bytes,
                     struct gpubuf_bundle **bundle)
{
    uint64_t length = strlen(manifest);
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_BUNDLE, .bytes = 8 + length + data_bytes, .manifest_bytes = length};
    struct gpubuf_object *object;
    ok(client, gpubuf_create(client, "text", &layout, &options, &object));
    ok(client, gpubuf_write(object, GPUBUF_DATA, 0, &said, 8, NULL));
    ok(client, gpubuf_write(object, GPUBUF_DATA, 8, manifest, length, NULL));
    ok(client, gpubuf_seal(object, NULL));
    int r = gpubuf_bundle_open(object, bundle);
    gpubuf_release(object);
    return r;
}

COUNTED(test_what_others_write)
{
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *array;
    static const char odd[] = "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                              "\"b\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[1,3]},"
                              "\"c\":{\"dtype\":\"F4\",\"shape\":[2,1],\"data_offsets\":[3,4]}}";
    size_t length = strlen(odd);
    ok(client, open_text(odd, length, 4, &bundle));
    ok(client, gpubuf_bundle_array(bundle, 0, &array));
    gpubuf_release(array);
    /* One of the two is odd, whatever the length. */
    assert_int_equal(gpubuf_bundle_at(bundle, 1)->offset, 8 + length + 1);
    fails(client, (8 + length + 1) % 2 ? GPUBUF_E_UNSUPPORTED : 0,
          gpubuf_bundle_array(bundle, 1, &array));
    if ((8 + length + 1) % 2 == 0)
        gpubuf_release(array);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_bundle_array(bundle, 2, &array));
    assert_non_null(strstr(gpubuf_errmsg(client), "\"c\""));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_bundle_copy(bundle, 2, &array));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_bundle_copy(bundle, 3, &array));
    gpubuf_bundle_free(bundle);

    fails(client, GPUBUF_E_INVALID, open_text("{\"a\":{}}", 8, 0, &bundle));
    assert_string_equal(gpubuf_errmsg(client), "text: tensor \"a\": dtype: missing");
    fails(client, GPUBUF_E_INVALID, open_text("{}", 3, 0, &bundle));
    assert_string_equal(gpubuf_errmsg(client), "text: its first 8 bytes say that the manifest has "
                                               "3 bytes, and its layout says 2");
    fails(client, GPUBUF_E_INVALID, open_text("{}", UINT64_MAX, 0, &bundle));
    put_counting(client, "bytes", 100, 0);
    ok(client, gpubuf_open(client, "bytes", NULL, &array));
    fails(client, GPUBUF_E_INVALID, gpubuf_bundle_open(array, &bundle));
    assert_string_equal(gpubuf_errmsg(client), "bytes is no bundle");
    gpubuf_release(array);
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_open(NULL, &bundle));
}

/* A tensor that its file has not aligned, in memory of its own. */
COUNTED(test_copies)
{
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *array, *slice, *between;
    struct gpubuf_memory memory;
    struct ArrowSchema schema;
    struct ArrowArray arrow;
    /* Of three beginnings that follow each other at most two are even. */
    static const char odd[] = "{\"a\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                              "\"b\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[8,9]},"
                              "\"c\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[9,17]}}";
    size_t length = strlen(odd);
    ok(client, open_text(odd, length, 17, &bundle));
    ok(client, gpubuf_bundle_array(bundle, 1, &between));
    ok(client, gpubuf_memory(between, GPUBUF_DATA, &memory));
    const char *content = (char *)memory.pointer - 8;
    for (size_t i = 0; i < 3; i += 2) {
        ok(client, gpubuf_bundle_copy(bundle, i, &array));
        ok(client, gpubuf_memory(array, GPUBUF_DATA, &memory));
        assert_int_equal((uintptr_t)memory.pointer % 4, 0);
        assert_int_equal(memory.bytes, 8);
        assert_false(memory.writable);
        assert_memory_equal(memory.pointer, content + (i ? 9 : 0), 8);
        assert_string_equal(gpubuf_dtype(array), "int32");
        ok(client, gpubuf_slice(array, 1, 1, &slice));
        ok(client, gpubuf_export_arrow(array, &schema, &arrow));
        gpubuf_release(array);
        ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
        assert_memory_equal(memory.pointer, content + (i ? 13 : 4), 4);
        gpubuf_release(slice);
        assert_memory_equal(arrow.buffers[1], content + (i ? 9 : 0), 8);
        arrow.release(&arrow);
        schema.release(&schema);
    }
    gpubuf_release(between);
    gpubuf_bundle_free(bundle);
}

COUNTED(test_texts_of_the_host)
{
    struct gpubuf_bundle *planned = plan(), *bundle;
    struct gpubuf_layout_spec layout;
    struct gpubuf_object *array;
    uint64_t bytes;
    const char *head = gpubuf_bundle_head(planned, &bytes);
    gpubuf_bundle_layout(planned, &layout);
    ok(NULL, gpubuf_bundle_parse(head + 8, bytes - 8, layout.bytes, &bundle));
    gpubuf_bundle_free(planned);
    check_tensors(bundle, false);
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_array(bundle, 0, &array));
    gpubuf_bundle_free(bundle);
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_parse("{}", 2, 11, &bundle));
    assert_string_equal(gpubuf_errmsg(NULL), "the data has 1 bytes, but the tensors only 0");
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_parse(NULL, 2, 10, &bundle));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_plan(NULL, 1, NULL, &bundle));
    struct gpubuf_tensor_spec twice[] = {specs[0], specs[0]};
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_plan(twice, 2, NULL, &bundle));
    assert_string_equal(gpubuf_errmsg(NULL), "tensor \"bias\" is there twice");
    ok(NULL, gpubuf_bundle_plan(NULL, 0, NULL, &bundle));
    assert_int_equal(gpubuf_bundle_count(bundle), 0);
    gpubuf_bundle_free(bundle);
}

/* A safetensors file in a memfd of the caller's is a bundle as it is; and under another name. */
COUNTED(test_registered_and_aliased)
{
    struct gpubuf_bundle *planned = plan(), *bundle;
    struct gpubuf_layout_spec spec;
    struct gpubuf_object *object;
    uint64_t bytes;
    const void *head = gpubuf_bundle_head(planned, &bytes);
    char layout[256];
    gpubuf_bundle_layout(planned, &spec);
    int fd = fake_memfd(spec.bytes, 0, F_SEAL_SHRINK);
    assert_int_equal(pwrite(fd, head, bytes, 0), bytes);
    for (size_t i = 0; i < COUNT(specs); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(planned, i);
        assert_int_equal(pwrite(fd, data[i], tensor->bytes, (off_t)tensor->offset), tensor->bytes);
    }
    snprintf(layout, sizeof(layout),
             "{\"kind\":\"bundle\",\"bytes\":%llu,\"manifest_bytes\":%llu,"
             "\"data\":{\"handle\":0,\"offset\":0,\"bytes\":%llu}}",
             (unsigned long long)spec.bytes, (unsigned long long)spec.manifest_bytes,
             (unsigned long long)spec.bytes);
    gpubuf_bundle_free(planned);
    ok(client, gpubuf_register_memfd(client, "file", fd, spec.bytes, layout, NULL));
    close(fd);
    ok(client, gpubuf_alias(client, "other", "file", NULL));
    struct gpubuf_alias_options part = {.size = sizeof(part), .slice = true, .length = 8};
    fails(client, GPUBUF_E_INVALID, gpubuf_alias(client, "part", "file", &part));
    assert_non_null(strstr(gpubuf_errmsg(client), "cannot be sliced"));
    ok(client, gpubuf_delete(client, "file"));
    ok(client, gpubuf_open(client, "other", NULL, &object));
    ok(client, gpubuf_bundle_open(object, &bundle));
    gpubuf_release(object);
    check_tensors(bundle, true);
    gpubuf_bundle_free(bundle);
    ok(client, gpubuf_delete(client, "other"));
}

static void check_names(const char *name, const char *const *names, size_t count)
{
    struct gpubuf_object *object;
    struct gpubuf_bundle *bundle;
    ok(client, gpubuf_open(client, name, NULL, &object));
    ok(client, gpubuf_bundle_open(object, &bundle));
    gpubuf_release(object);
    assert_int_equal(gpubuf_bundle_count(bundle), count);
    for (size_t i = 0, k; i < count; i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        assert_string_equal(tensor->name, names[i]);
        assert_ptr_equal(gpubuf_bundle_find(bundle, names[i], &k), tensor);
        assert_int_equal(k, i);
        for (k = 0; strcmp(specs[k].name, names[i]) != 0;)
            k++;
        assert_memory_equal(tensor->pointer, data[k], tensor->bytes);
    }
    assert_null(gpubuf_bundle_find(bundle, "weight", NULL));
    gpubuf_bundle_free(bundle);
}

/* Memory that was allocated from piece by piece, and is a bundle in the end. */
COUNTED(test_gaps)
{
    static const char *const names[] = {"bias", "none", "scale"};
    static const char manifest[] =
        "{\"__gap__0\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"bias\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[3,8]},"
        "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,2],\"data_offsets\":[8,8]},"
        "\"scale\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},"
        "\"__gap__1\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[16,18]}}      ";
    enum { HEAD = sizeof(manifest) - 1, BYTES = 8 + HEAD + 18 };
    const struct gpubuf_tensor_spec gap = {"__gap__0", "uint8", 1, bias_shape};
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_BUNDLE, .bytes = BYTES, .manifest_bytes = HEAD};
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *object;
    struct gpubuf_memory memory;
    ok(client, gpubuf_create(client, "gaps", &layout, NULL, &object));
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    unsigned char *at = memory.pointer;
    at[0] = (unsigned char)(HEAD & 0xff);
    at[1] = (unsigned char)(HEAD >> 8);
    memcpy(at + 8, manifest, HEAD);
    memcpy(at + 8 + HEAD + 3, "12345scale678", 13);
    ok(client, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    check_names("gaps", names, COUNT(names));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_bundle_plan(&gap, 1, NULL, &bundle));
    ok(client, gpubuf_delete(client, "gaps"));
}

RUN_TESTS(connect_group, disconnect_group)
