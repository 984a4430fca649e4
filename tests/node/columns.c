/*
 * The C library's side of what passes between languages: tells a column or table as JSON, every
 * buffer by its CRC-32, on the host or a GPU; and publishes anew what it opened, by way of Arrow.
 *
 *   columns dump NAME
 *   columns copy NAME NEW DEVICE      of what is on the host
 *
 * languages.test.mjs and columns.py tell the same of the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpubuf.h"

static struct gpubuf_client *client;

static void die(const char *what)
{
    fprintf(stderr, "columns: %s: %s\n", what, gpubuf_errmsg(client));
    exit(1);
}

static uint32_t crc32(const unsigned char *bytes, uint64_t count)
{
    uint32_t crc = ~0u;
    for (uint64_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* A copy of [from, from + bytes) of a buffer, wherever it is; NULL if there is no such buffer. */
static unsigned char *fetch(struct gpubuf_object *column, enum gpubuf_which which, uint64_t from,
                            uint64_t bytes)
{
    struct gpubuf_memory memory;
    int r = gpubuf_memory(column, which, &memory);
    if (r < 0)
        die("memory");
    if (r > 0)
        return NULL;
    unsigned char *copy = malloc(bytes + 1);
    if (!copy || gpubuf_read(column, which, from, copy, bytes, NULL) < 0)
        die("read");
    return copy;
}

static void print_crc(const char *member, const unsigned char *bytes, uint64_t count)
{
    if (bytes)
        printf(",\"%s\":%" PRIu32, member, crc32(bytes, count));
}

/* The bits [offset, offset + length), each as a byte of '0' or '1'. */
static void print_bits(struct gpubuf_object *column, const char *member, enum gpubuf_which which)
{
    uint64_t offset = gpubuf_offset(column), length = gpubuf_length(column);
    unsigned char *bits = fetch(column, which, offset / 8, (offset % 8 + length + 7) / 8);
    if (!bits)
        return;
    unsigned char *text = malloc(length + 1);
    if (!text)
        die("memory");
    for (uint64_t i = 0; i < length; i++) {
        uint64_t bit = offset % 8 + i;
        text[i] = bits[bit / 8] >> (bit % 8) & 1 ? '1' : '0';
    }
    print_crc(member, text, length);
    free(text);
    free(bits);
}

static uint64_t width_of(const char *dtype)
{
    static const struct {
        const char *dtype;
        uint64_t width;
    } widths[] = {{"int8", 1},    {"uint8", 1},   {"int16", 2}, {"uint16", 2},
                  {"int32", 4},   {"uint32", 4},  {"int64", 8}, {"uint64", 8},
                  {"float32", 4}, {"float64", 8}, {"date32", 4}};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        if (strcmp(dtype, widths[i].dtype) == 0)
            return widths[i].width;
    }
    return 0;
}

/* Offsets count from the first one; of strings the characters between the first and the last. */
static void print_offsets(struct gpubuf_object *column, bool strings)
{
    uint64_t length = gpubuf_length(column);
    unsigned char *bytes =
        fetch(column, GPUBUF_OFFSETS, gpubuf_offset(column) * 4, (length + 1) * 4);
    if (!bytes)
        return;
    int32_t *offsets = (int32_t *)(void *)bytes, first = offsets[0], last = offsets[length];
    for (uint64_t i = 0; i <= length; i++)
        offsets[i] -= first;
    print_crc("offsets", bytes, (length + 1) * 4);
    if (strings) {
        uint64_t count = (uint64_t)(last - first);
        unsigned char *text = fetch(column, GPUBUF_DATA, (uint64_t)first, count);
        print_crc("data", text ? text : bytes, count);
        free(text);
    }
    free(bytes);
}

static void print_column(struct gpubuf_object *column)
{
    bool is_column = gpubuf_kind(column) == GPUBUF_KIND_COLUMN;
    const char *dtype = is_column ? gpubuf_dtype(column) : NULL;
    uint64_t length = gpubuf_length(column), width = dtype ? width_of(dtype) : 0;
    printf("{");
    if (is_column && gpubuf_column_name(column))
        printf("\"name\":\"%s\",", gpubuf_column_name(column));
    if (dtype)
        printf("\"dtype\":\"%s\",\"nulls\":%" PRId64 ",", dtype, gpubuf_null_count(column));
    printf("\"length\":%" PRIu64, length);
    if (dtype) {
        print_bits(column, "mask", GPUBUF_MASK);
        if (strcmp(dtype, "bool") == 0)
            print_bits(column, "data", GPUBUF_DATA);
        print_offsets(column, strcmp(dtype, "utf8") == 0 || strcmp(dtype, "binary") == 0);
    }
    if (width > 0) {
        unsigned char *data =
            fetch(column, GPUBUF_DATA, gpubuf_offset(column) * width, length * width);
        print_crc("data", data, length * width);
        free(data);
    }
    printf(",\"children\":[");
    for (size_t i = 0; i < gpubuf_child_count(column); i++) {
        struct gpubuf_object *child;
        if (gpubuf_child(column, i, &child) < 0)
            die("child");
        printf(i ? "," : "");
        print_column(child);
        gpubuf_release(child);
    }
    printf("]}");
}

static void copy(struct gpubuf_object *object, const char *name, const char *device)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct gpubuf_create_options options = {
        .size = sizeof(options), .device = device, .replace = true};
    if (gpubuf_export_arrow(object, &schema, &array) < 0)
        die("export_arrow");
    if (gpubuf_put_arrow(client, name, &schema, &array, gpubuf_kind(object) == GPUBUF_KIND_TABLE,
                         &options) < 0)
        die("put_arrow");
    array.release(&array);
    schema.release(&schema);
}

int main(int argc, char **argv)
{
    struct gpubuf_object *object;
    if (argc < 3 || gpubuf_connect(&client, NULL) < 0)
        die("connect");
    if (gpubuf_open(client, argv[2], NULL, &object) < 0)
        die(argv[2]);
    if (strcmp(argv[1], "dump") == 0) {
        print_column(object);
        putchar('\n');
    } else if (argc == 5) {
        copy(object, argv[3], argv[4]);
    }
    gpubuf_release(object);
    gpubuf_disconnect(client);
    return 0;
}
