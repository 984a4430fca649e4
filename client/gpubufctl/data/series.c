#include "client/gpubufctl/data/series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/output/end.h"
#include "client/gpubufctl/output/format.h"
#include "proto/wire/handle.h"

/* Ends the program if the library has failed. */
static void check(const struct gpubuf_object *object, int code)
{
    const char *sentence = gpubuf_object_errmsg(object);

    if (code < 0)
        gb_cli_refuse(code, "%s", sentence[0] ? sentence : gpubuf_strerror(code));
}

static struct gpubuf_memory map_buffer(struct gpubuf_object *object, enum gpubuf_which which)
{
    struct gpubuf_memory memory = {0};

    check(object, gpubuf_memory(object, which, &memory));
    return memory;
}

/* ---- objects on a GPU: a copy of what the view shows ---- */

static void narrow(struct gpubuf_memory *memory, uint64_t *from, uint64_t start, uint64_t end)
{
    *from = start < memory->bytes ? start : memory->bytes;
    memory->bytes = (end < memory->bytes ? end : memory->bytes) - *from;
}

static void copy_buffer(struct gb_series *series, struct gpubuf_object *object,
                        enum gpubuf_which which, uint64_t from, struct gpubuf_memory *memory)
{
    if (!memory->pointer)
        return;
    memory->pointer = series->copies[which] = gb_grow(NULL, memory->bytes + 1, 1);
    check(object, gpubuf_read(object, which, from, memory->pointer, memory->bytes, NULL));
}

/* Of a column only the elements shown are copied, beginning at one whose bits begin a byte. The
   text of a string column is copied whole: finding the part that is shown would take another copy
   from the GPU. */
static void copy_buffers(struct gb_series *series, struct gpubuf_object *object,
                         struct gpubuf_memory *data, struct gpubuf_memory *mask,
                         struct gpubuf_memory *offsets)
{
    uint64_t data_from = 0, mask_from = 0, offsets_from = 0;

    check(object, gpubuf_wait_ready(object, NULL));
    if (gpubuf_kind(object) == GPUBUF_KIND_COLUMN) {
        uint64_t first = series->offset / 8 * 8, end = series->offset + series->length;
        uint64_t width = series->info->offset_bytes, bits = gb_dtype_bits(&series->dtype);
        series->offset -= first;
        if (bits > 0)
            narrow(data, &data_from, first / 8 * bits, (end + 7) / 8 * bits);
        narrow(mask, &mask_from, first / 8, (end + 7) / 8);
        narrow(offsets, &offsets_from, first * width, (end + 1) * width);
    }
    copy_buffer(series, object, GPUBUF_DATA, data_from, data);
    copy_buffer(series, object, GPUBUF_MASK, mask_from, mask);
    copy_buffer(series, object, GPUBUF_OFFSETS, offsets_from, offsets);
}

/* ---- the beginning and the end -------------------------------------------------------------- */

static bool is_c_order(const struct gb_series *series)
{
    uint64_t expected = series->item_bytes;

    for (unsigned i = series->ndim; i-- > 0;) {
        uint64_t items = gb_dtype_items(&series->dtype, series->shape[i], i + 1 == series->ndim);
        if (items > 1 && series->strides[i] != (int64_t)expected)
            return false;
        expected *= items;
    }
    return true;
}

static void init_children(struct gb_series *series, struct gpubuf_object *object)
{
    series->child_count = gpubuf_child_count(object);
    if (series->child_count > 0)
        series->children = gb_new(series->child_count, sizeof(*series->children));
    for (size_t i = 0; i < series->child_count; i++) {
        struct gpubuf_object *child = NULL;
        check(object, gpubuf_child(object, i, &child));
        gb_series_init(&series->children[i], child);
        series->children[i].held = child;
    }
}

static void init_array(struct gb_series *series, struct gpubuf_object *object)
{
    static const uint64_t no_axes[1];

    series->ndim = gpubuf_ndim(object);
    series->shape = series->ndim ? gpubuf_shape(object) : no_axes;
    series->strides = gpubuf_strides(object);
    series->length = 1;
    for (unsigned i = 0; i < series->ndim; i++)
        series->length *= series->shape[i];
}

void gb_series_init(struct gb_series *series, struct gpubuf_object *object)
{
    enum gpubuf_kind kind = gpubuf_kind(object);
    const char *dtype = kind == GPUBUF_KIND_BYTES ? "uint8" : gpubuf_dtype(object);

    *series = (struct gb_series){
        .name = gpubuf_column_name(object),
        .length = gpubuf_length(object),
        .offset = gpubuf_offset(object),
        .null_count = gpubuf_null_count(object),
    };
    if (!gb_dtype_parse(dtype, strlen(dtype), &series->dtype))
        gb_cli_refuse(GPUBUF_E_UNSUPPORTED, "dtype \"%.60s\" is unknown", dtype);
    series->info = gb_type_info(series->dtype.type);
    series->item_bytes = gb_dtype_item(&series->dtype);
    if (kind == GPUBUF_KIND_ARRAY)
        init_array(series, object);
    series->c_order = is_c_order(series);

    struct gpubuf_memory data = map_buffer(object, GPUBUF_DATA),
                         mask = map_buffer(object, GPUBUF_MASK),
                         offsets = map_buffer(object, GPUBUF_OFFSETS);
    if (!gb_is_host(gpubuf_device(object)))
        copy_buffers(series, object, &data, &mask, &offsets);
    series->data = data.pointer;
    series->data_bytes = data.bytes;
    series->mask = mask.pointer;
    series->offsets = offsets.pointer;
    init_children(series, object);
}

void gb_series_end(struct gb_series *series)
{
    for (size_t i = 0; i < series->child_count; i++)
        gb_series_end(&series->children[i]);
    free(series->children);
    for (size_t i = 0; i < sizeof(series->copies) / sizeof(series->copies[0]); i++)
        free(series->copies[i]);
    gpubuf_release(series->held);
    *series = (struct gb_series){0};
}

static bool bit_at(const unsigned char *bits, uint64_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

bool gb_series_valid(const struct gb_series *series, uint64_t i)
{
    if (series->dtype.type == GB_TYPE_NULL)
        return false;
    if (series->dtype.type == GB_TYPE_DICTIONARY) /* its nulls are counted in its indices */
        return i >= series->children[0].length || gb_series_valid(&series->children[0], i);
    return !series->mask || bit_at(series->mask, series->offset + i);
}

bool gb_series_bit(const struct gb_series *series, uint64_t i)
{
    return bit_at(series->data, series->offset + i);
}

uint64_t gb_series_nulls(const struct gb_series *series)
{
    if (series->dtype.type == GB_TYPE_DICTIONARY)
        return gb_series_nulls(&series->children[0]);
    if (series->null_count >= 0)
        return (uint64_t)series->null_count;
    uint64_t nulls = 0;
    for (uint64_t i = 0; i < series->length; i++)
        nulls += !gb_series_valid(series, i);
    return nulls;
}

const unsigned char *gb_series_item(const struct gb_series *series, uint64_t i)
{
    if (!series->shape)
        return series->data + (series->offset + i) * series->item_bytes;
    if (series->c_order)
        return series->data + i * series->item_bytes;
    const unsigned char *item = series->data;
    for (unsigned axis = series->ndim; axis-- > 0;) {
        uint64_t items =
            gb_dtype_items(&series->dtype, series->shape[axis], axis + 1 == series->ndim);
        item += (int64_t)(i % items) * series->strides[axis];
        i /= items;
    }
    return item;
}

/* Rows begin at bytes; one element of 6 bits may lie in two of them. */
uint8_t gb_series_packed(const struct gb_series *series, uint64_t i)
{
    uint64_t bits = gb_dtype_bits(&series->dtype);
    const unsigned char *item = gb_series_item(series, i * bits / 8);
    unsigned shift = (unsigned)(i * bits % 8);
    unsigned pair = item[0] | (shift + bits > 8 ? (unsigned)item[1] << 8 : 0);

    return (uint8_t)(pair >> shift & ((1u << bits) - 1));
}

/* ---- strings and lists ---------------------------------------------------------------------- */

static void read_span(const struct gb_series *series, uint64_t i, uint64_t limit, uint64_t *start,
                      uint64_t *end)
{
    int64_t bounds[2] = {0, 0};

    for (unsigned k = 0; k < 2; k++) {
        uint64_t index = series->offset + i + k;
        if (series->info->offset_bytes == 8) {
            memcpy(&bounds[k], series->offsets + 8 * index, 8);
        } else {
            int32_t narrow;
            memcpy(&narrow, series->offsets + 4 * index, 4);
            bounds[k] = narrow;
        }
    }
    if (bounds[0] < 0 || bounds[1] < bounds[0] || (uint64_t)bounds[1] > limit)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "column \"%.80s\", element %" PRIu64 ": its offsets %" PRId64 " to %" PRId64
                      " are not within 0 to %" PRIu64,
                      series->name ? series->name : "", i, bounds[0], bounds[1], limit);
    *start = (uint64_t)bounds[0];
    *end = (uint64_t)bounds[1];
}

const char *gb_series_bytes(const struct gb_series *series, uint64_t i, size_t *length)
{
    uint64_t start, end;

    read_span(series, i, series->data_bytes, &start, &end);
    *length = (size_t)(end - start);
    return series->data ? (const char *)series->data + start : "";
}

/* ---- elements as text ----------------------------------------------------------------------- */

static void write_hex(struct gb_writer *writer, const unsigned char *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < length; i++) {
        gb_write_char(writer, digits[bytes[i] >> 4]);
        gb_write_char(writer, digits[bytes[i] & 15]);
    }
}

static int64_t read_signed(const unsigned char *item, uint64_t bytes)
{
    int64_t value = 0;
    int8_t i8;
    int16_t i16;
    int32_t i32;

    switch (bytes) {
    case 1:
        memcpy(&i8, item, 1);
        return i8;
    case 2:
        memcpy(&i16, item, 2);
        return i16;
    case 4:
        memcpy(&i32, item, 4);
        return i32;
    default:
        memcpy(&value, item, 8);
        return value;
    }
}

static uint64_t read_unsigned(const unsigned char *item, uint64_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, item, bytes); /* little-endian, as everywhere here */
    return value;
}

static float read_float(const unsigned char *item)
{
    float value;

    memcpy(&value, item, sizeof(value));
    return value;
}

static double read_double(const unsigned char *item)
{
    double value;

    memcpy(&value, item, sizeof(value));
    return value;
}

/* "1.0+2.0j", as NumPy and Python have it. */
static void write_complex(struct gb_writer *writer, const unsigned char *item, bool wide)
{
    char real[GB_FORMAT_MAX], imaginary[GB_FORMAT_MAX];

    if (wide) {
        gb_format_float64(read_double(item), real);
        gb_format_float64(read_double(item + 8), imaginary);
    } else {
        gb_format_float32(read_float(item), real);
        gb_format_float32(read_float(item + 4), imaginary);
    }
    gb_write_text(writer, real);
    if (imaginary[0] != '-')
        gb_write_char(writer, '+');
    gb_write_text(writer, imaginary);
    gb_write_char(writer, 'j');
}

/* date64 counts milliseconds, which must be whole days. */
static void format_date64(int64_t value, char *text)
{
    if (value % 86400000 == 0)
        gb_format_date(value / 86400000, text);
    else
        gb_format_timestamp(value, GB_UNIT_MS, false, text);
}

static void write_fixed(const struct gb_series *series, uint64_t i, struct gb_writer *writer)
{
    const struct gb_dtype *dtype = &series->dtype;
    char text[GB_FORMAT_MAX] = "";

    if (gb_dtype_packed(dtype)) {
        gb_format_small_float(dtype->type, gb_series_packed(series, i), text);
        gb_write_text(writer, text);
        return;
    }
    const unsigned char *item = gb_series_item(series, i);

    switch (dtype->type) {
    case GB_TYPE_BOOL8:
        gb_write_bool(writer, *item != 0);
        return;
    case GB_TYPE_UINT8:
    case GB_TYPE_UINT16:
    case GB_TYPE_UINT32:
    case GB_TYPE_UINT64:
        gb_write_uint(writer, read_unsigned(item, series->item_bytes));
        return;
    case GB_TYPE_FLOAT16:
        gb_format_float16((uint16_t)read_unsigned(item, 2), text);
        break;
    case GB_TYPE_BFLOAT16:
        gb_format_bfloat16((uint16_t)read_unsigned(item, 2), text);
        break;
    case GB_TYPE_FLOAT8_E3M4:
    case GB_TYPE_FLOAT8_E4M3:
    case GB_TYPE_FLOAT8_E4M3B11FNUZ:
    case GB_TYPE_FLOAT8_E4M3FN:
    case GB_TYPE_FLOAT8_E4M3FNUZ:
    case GB_TYPE_FLOAT8_E5M2:
    case GB_TYPE_FLOAT8_E5M2FNUZ:
    case GB_TYPE_FLOAT8_E8M0FNU:
        gb_format_small_float(dtype->type, *item, text);
        break;
    case GB_TYPE_FLOAT32:
        gb_format_float32(read_float(item), text);
        break;
    case GB_TYPE_FLOAT64:
        gb_format_float64(read_double(item), text);
        break;
    case GB_TYPE_COMPLEX64:
    case GB_TYPE_COMPLEX128:
        write_complex(writer, item, dtype->type == GB_TYPE_COMPLEX128);
        return;
    case GB_TYPE_FIXED_BINARY:
        write_hex(writer, item, series->item_bytes);
        return;
    case GB_TYPE_DATE32:
        gb_format_date(read_signed(item, 4), text);
        break;
    case GB_TYPE_DATE64:
        format_date64(read_signed(item, 8), text);
        break;
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
        gb_format_time(read_signed(item, series->item_bytes), dtype->unit, text);
        break;
    case GB_TYPE_TIMESTAMP:
        gb_format_timestamp(read_signed(item, 8), dtype->unit, dtype->zone[0] != '\0', text);
        break;
    case GB_TYPE_DURATION:
        gb_format_duration(read_signed(item, 8), dtype->unit, text);
        break;
    case GB_TYPE_MONTH_INTERVAL:
    case GB_TYPE_DAY_TIME_INTERVAL:
    case GB_TYPE_MONTH_DAY_NANO_INTERVAL:
        gb_format_interval(dtype->type, item, text);
        break;
    case GB_TYPE_DECIMAL128:
        gb_format_decimal128(item, dtype->scale, text);
        break;
    default:
        gb_write_int(writer, read_signed(item, series->item_bytes));
        return;
    }
    gb_write_text(writer, text);
}

static void write_dictionary(const struct gb_series *series, uint64_t i, bool nested,
                             struct gb_writer *writer);

static bool is_float(enum gb_type type)
{
    return (type >= GB_TYPE_FLOAT16 && type <= GB_TYPE_FLOAT64) ||
           (type >= GB_TYPE_FLOAT8_E3M4 && type <= GB_TYPE_FLOAT4_E2M1FN);
}

/* Appends an element inside a list or struct: null, numbers and booleans as they are, all else in
   quotes. */
static void write_nested(const struct gb_series *series, uint64_t i, struct gb_writer *writer)
{
    if (i >= series->length)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "a nested column has %" PRIu64 " elements, but element %" PRIu64
                      " is referred to",
                      series->length, i);
    if (!gb_series_valid(series, i)) {
        GB_WRITE_LITERAL(writer, "null");
        return;
    }
    enum gb_type type = series->dtype.type;
    bool bare = gb_series_is_number(series) || type == GB_TYPE_BOOL || type == GB_TYPE_BOOL8 ||
                type == GB_TYPE_NULL || series->info->children != 0;
    if (type == GB_TYPE_DICTIONARY) {
        write_dictionary(series, i, true, writer);
        return;
    }
    if (bare && !(series->json && is_float(type))) {
        gb_series_write(series, i, writer);
        return;
    }
    struct gb_writer inner;
    gb_writer_init(&inner, 0);
    gb_series_write(series, i, &inner);
    const char *text = gb_writer_text(&inner);
    if (bare && memchr(text, 'n', inner.length))
        GB_WRITE_LITERAL(writer, "null"); /* nan and inf */
    else if (bare)
        gb_write(writer, text, inner.length);
    else
        gb_write_string(writer, text, inner.length);
    gb_writer_end(&inner);
}

static void write_list(const struct gb_series *series, uint64_t start, uint64_t end,
                       struct gb_writer *writer)
{
    gb_write_char(writer, '[');
    for (uint64_t i = start; i < end && !writer->failed; i++) {
        if (i > start)
            GB_WRITE_LITERAL(writer, ", ");
        write_nested(&series->children[0], i, writer);
    }
    gb_write_char(writer, ']');
}

static void write_struct(const struct gb_series *series, uint64_t i, struct gb_writer *writer)
{
    gb_write_char(writer, '{');
    for (size_t k = 0; k < series->child_count && !writer->failed; k++) {
        const struct gb_series *child = &series->children[k];
        if (k > 0)
            GB_WRITE_LITERAL(writer, ", ");
        gb_write_cstring(writer, child->name ? child->name : "");
        GB_WRITE_LITERAL(writer, ": ");
        write_nested(child, i, writer);
    }
    gb_write_char(writer, '}');
}

/* The children are the indices, one for each element, and the values. `nested`: text is in
   quotes. */
static void write_dictionary(const struct gb_series *series, uint64_t i, bool nested,
                             struct gb_writer *writer)
{
    const struct gb_series *indices = &series->children[0], *values = &series->children[1];

    if (i >= indices->length)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "a dictionary has %" PRIu64 " indices, but index %" PRIu64 " is referred to",
                      indices->length, i);
    const unsigned char *item = gb_series_item(indices, i);
    int64_t index = indices->info->name[0] == 'u'
                        ? (int64_t)read_unsigned(item, indices->item_bytes)
                        : read_signed(item, indices->item_bytes);
    if (index < 0 || (uint64_t)index >= values->length)
        gb_cli_refuse(GPUBUF_E_INVALID,
                      "a dictionary has %" PRIu64 " values, but value %" PRId64 " is referred to",
                      values->length, index);
    if (!gb_series_valid(values, (uint64_t)index))
        GB_WRITE_LITERAL(writer, "null");
    else if (nested)
        write_nested(values, (uint64_t)index, writer);
    else
        gb_series_write(values, (uint64_t)index, writer);
}

void gb_series_write(const struct gb_series *series, uint64_t i, struct gb_writer *writer)
{
    enum gb_type type = series->dtype.type;
    const char *text;
    size_t length;
    uint64_t start, end;

    switch (type) {
    case GB_TYPE_NULL:
        GB_WRITE_LITERAL(writer, "null");
        break;
    case GB_TYPE_BOOL:
        gb_write_bool(writer, gb_series_bit(series, i));
        break;
    case GB_TYPE_UTF8:
    case GB_TYPE_LARGE_UTF8:
    case GB_TYPE_BINARY:
    case GB_TYPE_LARGE_BINARY:
        text = gb_series_bytes(series, i, &length);
        if (type == GB_TYPE_UTF8 || type == GB_TYPE_LARGE_UTF8)
            gb_write(writer, text, length);
        else
            write_hex(writer, (const unsigned char *)text, length);
        break;
    case GB_TYPE_LIST:
    case GB_TYPE_LARGE_LIST:
    case GB_TYPE_MAP:
        read_span(series, i, series->children[0].length, &start, &end);
        write_list(series, start, end, writer);
        break;
    case GB_TYPE_FIXED_LIST:
        write_list(series, i * series->dtype.size, (i + 1) * series->dtype.size, writer);
        break;
    case GB_TYPE_STRUCT:
        write_struct(series, i, writer);
        break;
    case GB_TYPE_DICTIONARY:
        write_dictionary(series, i, false, writer);
        break;
    default:
        write_fixed(series, i, writer);
    }
}

bool gb_series_is_number(const struct gb_series *series)
{
    enum gb_type type = series->dtype.type;

    return (type >= GB_TYPE_INT8 && type <= GB_TYPE_UINT64) || is_float(type) ||
           type == GB_TYPE_DECIMAL128;
}

void gb_series_as_json(struct gb_series *series)
{
    series->json = true;
    for (size_t k = 0; k < series->child_count; k++)
        gb_series_as_json(&series->children[k]);
}

void gb_series_write_json(const struct gb_series *series, uint64_t i, struct gb_writer *writer)
{
    write_nested(series, i, writer);
}
